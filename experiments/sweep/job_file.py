"""The jobs of a sweep on a cluster: which runs were submitted where, kept in the sweep's folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter, ValidationError

from costada.experiments.sweep.sweep import SweepRun, run_in
from costada.runs.config import STORED, RunConfig
from costada.runs.shared_purse import PurseAddress
from costada.store.files import make_folder, read_text, replace_text

JOBS = ".jobs"
"""Folder in that of a sweep; no run has this name."""

QUEUE = "queue"
"""Engine of a sweep whose runs are jobs of a queue in Postgres."""

FILE = "jobs.json"
ORDER = "order"
STOP = "stop"


@dataclass(frozen=True, slots=True)
class Submission:
    """Runs that were submitted together."""

    token: str  # names the submission on the cluster, and its folder below the jobs' folder
    runs: tuple[str, ...]  # names, in the order of submission
    job: str = ""  # the cluster's id; empty if the command died before it was known


@dataclass(frozen=True, slots=True)
class JobFile:
    """What `jobs.json` holds."""

    engine: str  # value of `--on`
    settings: dict[str, RunConfig]  # of each run, by name
    submissions: tuple[Submission, ...] = ()
    purse: PurseAddress | None = None
    least: dict[str, Decimal] = field(default_factory=dict)  # as `SweepRun.least`, by name

    @classmethod
    def load(cls, out: Path) -> Self | None:
        """The file of a sweep, `None` if it has none; raises `ValueError` if it is damaged."""
        path = out / JOBS / FILE
        try:
            return TypeAdapter(cls).validate_json(read_text(path), context=STORED)
        except FileNotFoundError:
            return None
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ValueError(f"{path}: {place}: {first['msg']}; remove it if you can") from None

    @classmethod
    def of(cls, out: Path, engine: str, runs: Iterable[SweepRun]) -> Self:
        """The file of a sweep, with these runs and all earlier ones."""
        before, added = cls.load(out) or cls(engine, {}), list(runs)
        return replace(
            before,
            engine=engine,
            settings={**before.settings, **{run.name: run.config for run in added}},
            purse=added[0].purse if added else before.purse,
            least={**before.least, **{run.name: run.least for run in added}},
        )

    def save(self, out: Path) -> None:
        """Replace the file."""
        make_folder(out / JOBS)
        replace_text(out / JOBS / FILE, TypeAdapter(JobFile).dump_json(self, indent=1).decode())

    def runs(self, out: Path, store: str | None = None) -> tuple[SweepRun, ...]:
        """The runs of the sweep, which are in a database if it has one."""
        found = (run_in(out, name, config, store) for name, config in self.settings.items())
        least = self.least
        return tuple(
            replace(run, purse=self.purse, least=least.get(run.name, Decimal(0))) for run in found
        )


def order_path(out: Path) -> Path:
    """The file by which running tasks learn that they should stop."""
    return out / JOBS / ORDER


def give_order(out: Path, order: str = "") -> None:
    """Order the tasks of a sweep to stop, with `STOP`, or withdraw that order.

    The file is written in place: on network file systems only its content is seen at once.
    """
    make_folder(out / JOBS)
    with order_path(out).open("w") as file:
        file.write(order)


def is_ordered_to_stop(order: Path) -> bool:
    """Whether the tasks of a sweep should stop; raises `OSError` if the file is not there."""
    return order.read_text() == STOP
