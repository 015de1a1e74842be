"""The files of one run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from costada.evaluators.registry import is_built_in
from costada.evaluators.sandbox.layers import Layer
from costada.reports.run_view import OBJECT_MARK
from costada.runs.config import LARGEST_SETTINGS, RunConfig, load_config
from costada.runs.lease import is_held
from costada.store.files import append_text, make_folder, read_text, replace_text
from costada.store.run_files import RunFiles

if TYPE_CHECKING:
    from costada.nodes.end_step import TraceRow

DEFAULT_PARENT = Path("runs-out")
OF_EACH_PROCESS = (("proc",), ("dev", "fd"))
"""Folders that lead each process somewhere else."""

WEAK_LAYERS = (Layer.NONE, Layer.PROCESS)
"""Layers under which a program can do what its user can."""


class RunFolder(RunFiles):
    """The folder of one run."""

    __slots__ = ()

    @property
    def is_running(self) -> bool:
        """Whether a process is at work in this run."""
        return is_held(self.path)

    def next_command(self, config: RunConfig) -> str:
        """What resumes this run for the user who has just run or forked it, `--trust` included."""
        return self.resume_command + (" --trust" if _risk(config) else "")

    def claim(self, config: RunConfig) -> None:
        """Create the folder for a new run and save its settings.

        Raises:
            ValueError: If it holds a run or a file that the run would overwrite.
            OSError: If it cannot be created or written.
        """
        self.check_free()
        make_folder(self.path)
        try:
            config.save(self.settings)
        except FileExistsError:
            raise ValueError(self._occupied()) from None

    def check_free(self) -> None:
        """Refuse a folder that a new run would overwrite.

        Raises:
            ValueError: Naming what is there and how to go on with it.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path}: is a file, expected a folder for the run")
        if self.settings.exists():
            raise ValueError(self._occupied())
        for file in (self.database, self.steps, self.best_program, self.report):
            if file.exists():
                raise ValueError(
                    f"{file}: exists, the run would overwrite it; choose another --out"
                )

    def check_same(self, config: RunConfig) -> None:
        """Refuse to go on with a run under settings that it was not started with.

        Raises:
            ValueError: Naming the settings that differ, or that there is no run.
        """
        saved = self.load()
        differing = [
            f"{name} was {getattr(saved, name)!r}, got {getattr(config, name)!r}"
            for name in RunConfig.model_fields
            if getattr(saved, name) != getattr(config, name)
        ]
        if differing:
            raise ValueError(f"{self.path}: started with other settings: {'; '.join(differing)}")

    def check_trusted(self) -> None:
        """Refuse settings that would run code of the folder without a wall, or send a key away.

        A run folder may come from somebody else. Everything in it is data, but for a problem that
        lies in it, the programs in its run file where the settings ask for a weak sandbox, and the
        server that gets the user's key.

        Raises:
            ValueError: Naming the setting; also if there is no run.
        """
        self.check_own_problem()
        if risk := _risk(self.load()):
            raise ValueError(f"{self.settings}: {risk}; if the run is your own, give --trust")

    def check_own_problem(self) -> None:
        """Refuse a problem that may have come with the folder; raises as `check_trusted` does."""
        self.load()
        named = json.loads(read_text(self.settings, LARGEST_SETTINGS))["problem"]
        if self._may_have_brought(named):
            raise ValueError(
                f"{self.settings}: problem {named!r} may have come with the run folder, and its"
                " evaluator would be executed; read that first, then give --trust (from Python:"
                " trust=True)"
            )

    def _may_have_brought(self, named: str) -> bool:
        """Return whether a problem lies in the folder, or where depends on who asks.

        A run saves the absolute path of a problem folder, without steps upwards.
        """
        problem = Path(named)
        if is_built_in(named) or named.startswith(OBJECT_MARK):
            return False
        if not problem.is_absolute():
            return os.sep in named or problem.is_dir()
        steps = problem.parts[1:]
        if ".." in steps or any(steps[: len(each)] == each for each in OF_EACH_PROCESS):
            return True
        ways = (Path(os.path.normpath(problem)), problem.resolve())
        folders = (Path(os.path.normpath(self.path.absolute())), self.path.resolve())
        return any(way.is_relative_to(folder) for way in ways for folder in folders)

    def check_kept(self) -> None:
        """Refuse a folder whose run has begun and is no longer in its run file.

        Going on would begin it anew and pay for it again. A run that was stopped before its first
        checkpoint has a run file and a best program, and no steps.

        Raises:
            ValueError: Naming the run file; also if that is damaged.
        """
        is_there = _has_content(self.database)
        signs = [self.steps] if is_there else [self.steps, self.best_program]
        begun = next(filter(_has_content, signs), None)
        if begun and not (is_there and self._holds_run()):
            raise ValueError(
                f"{self.database}: holds no run, though {begun.name} shows that one has begun; put"
                " a copy of the run file in its place, or begin another run with a different --out"
            )

    def _holds_run(self) -> bool:
        from costada.store.run_store import RunStore

        with RunStore(self.database, is_read_only=True) as store:
            return bool(store.run_ids())

    def load(self) -> RunConfig:
        """Return the settings of the run in this folder; raises `ValueError` if there is none."""
        return load_config(self.settings)

    def _occupied(self) -> str:
        return (
            f"{self.path}: already holds a run. Go on with it: {self.resume_command}"
            "\nor start another one with a different --out"
        )


def unused_folder(problem_name: str, parent: Path = DEFAULT_PARENT) -> RunFolder:
    """Return the first folder `<problem>-<number>` that is not there yet.

    What is no ordinary character of a file name becomes a hyphen.
    """
    name = re.sub(r"[^\w-]+", "-", problem_name).strip("-") or "run"
    number = 1
    while (path := parent / f"{name}-{number}").exists():
        number += 1
    return RunFolder(path)


class StepLog:
    """The trace file of a run, one row per iteration, each once and in order."""

    def __init__(self, path: Path, rows: Sequence[TraceRow]) -> None:
        """Write the rows known so far, replacing what the file said."""
        self._path = path
        self._last = rows[-1]["iteration"] if rows else 0
        replace_text(path, "".join(map(_line, rows)))

    def append(self, row: TraceRow) -> None:
        """Add the row of a finished iteration; one that is already there is not added again."""
        if row["iteration"] <= self._last:
            return
        self._last = row["iteration"]
        append_text(self._path, _line(row))


def _risk(config: RunConfig) -> str | None:
    """Why it is a risk to resume a run of somebody else with these settings; None if it is none."""
    if config.sandbox in WEAK_LAYERS:
        return (
            f"sandbox is {config.sandbox.value!r}, under which programs of the folder could do"
            " whatever you can"
        )
    address = config.base_url
    if address and not _is_loopback(address) and address != os.environ.get("OPENAI_BASE_URL"):
        return f"base_url is {address!r}, where your API key would be sent"
    return None


def _is_loopback(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _line(row: TraceRow) -> str:
    return json.dumps(row) + "\n"
