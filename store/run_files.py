"""The files in a run folder; their names are part of the public format."""

import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Paths of the files in the folder of one run."""

    path: Path

    @property
    def database(self) -> Path:
        """Checkpoints, candidates and the call log."""
        return self.path / "run.sqlite"

    @property
    def settings(self) -> Path:
        """The configuration of the run."""
        return self.path / "settings.json"

    @property
    def steps(self) -> Path:
        """The trace, one JSON row per iteration."""
        return self.path / "steps.jsonl"

    @property
    def best_program(self) -> Path:
        """The text of the incumbent."""
        return self.path / "best_program.py"

    @property
    def report(self) -> Path:
        """The picture of the run."""
        return self.path / "report.png"

    @property
    def resume_command(self) -> str:
        """The command that resumes this run."""
        return f"costada resume {shlex.quote(str(self.path))}"
