"""A run as reports see it: its run file, its settings, and whether a process holds it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from costada.controller.constants import Constants
from costada.store.address import StorePlace


@dataclass(frozen=True, slots=True)
class ListedSetting:
    """One setting of a run: its value in words, whether that is the default, and what it means."""

    name: str
    value: str
    is_default: bool
    meaning: str


class RunSettings(Protocol):
    """The settings that reports show; `costada.runs.config.RunConfig` has them."""

    @property
    def problem(self) -> str: ...  # noqa: D102
    @property
    def method(self) -> str: ...  # noqa: D102
    @property
    def model(self) -> str: ...  # noqa: D102
    @property
    def seed(self) -> int: ...  # noqa: D102
    @property
    def budget(self) -> float: ...  # noqa: D102
    @property
    def max_iterations(self) -> int: ...  # noqa: D102
    @property
    def max_failures(self) -> int: ...  # noqa: D102
    @property
    def target(self) -> float | None: ...  # noqa: D102
    @property
    def parallel(self) -> int: ...  # noqa: D102
    @property
    def order(self) -> str: ...  # noqa: D102
    @property
    def lost_calls(self) -> str: ...  # noqa: D102
    @property
    def constants(self) -> Constants: ...  # noqa: D102
    @property
    def key_variables(self) -> Collection[str]: ...  # noqa: D102
    @property
    def listed(self) -> Sequence[ListedSetting]: ...  # noqa: D102


class RunView(Protocol):
    """The folder of a run; `costada.runs.folder.RunFolder` is one."""

    @property
    def path(self) -> Path:
        """The folder itself."""

    @property
    def place(self) -> str:
        """What messages call the run."""

    @property
    def database(self) -> StorePlace:
        """Checkpoints, programs and the ledger."""

    @property
    def best_program(self) -> Path:
        """The file or the folder of the best program."""

    @property
    def settings(self) -> Path:
        """The file of the run's settings."""

    @property
    def row(self) -> Path:
        """The file of what an index shows of the run once it has finished."""

    @property
    def resume_command(self) -> str:
        """The command that resumes the run."""

    def load(self) -> RunSettings:
        """The run's settings; raises `ValueError` if the folder holds no run."""

    @property
    def is_running(self) -> bool:
        """Whether a process holds the run."""

    @property
    def held_since(self) -> float | None:
        """When that process began to hold it, in seconds since 1970 UTC, 0 if that is unknown.

        `None` if no process holds it.
        """

    @property
    def claimed_at(self) -> float | None:
        """When its settings were written, in seconds since 1970 UTC; `None` if that is unknown."""
