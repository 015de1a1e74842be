"""Logs runs to Weights & Biases, online or offline, by its own variables."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import wandb

from costada.reports.tracking import Step, TrackedEnd, TrackedRun, file_of

PROJECT = "costada"
FOLDER_VARIABLE = "WANDB_DIR"


class WandbTracker:
    """Logs settings as the config, values with the iteration as step, files as one artifact.

    The file of an offline run cannot be continued, so a resumed run writes a new one; one upload
    then has the whole run.
    """

    def __init__(self) -> None:
        self._token = ""
        self._run: wandb.Run | None = None

    def check(self) -> None:
        """Raise `ValueError` if the run would be online and there is no key."""
        is_online = wandb.setup().settings.mode in ("online", "shared")
        if is_online and not wandb.login(prompt=False):
            raise ValueError(
                "found no API key; run wandb login, set WANDB_API_KEY, or set WANDB_MODE=offline"
            )

    def begin(self, run: TrackedRun) -> int:
        """Begin or continue the run; offline from its first iteration."""
        # wandb adds its own folder `wandb`.
        folder = Path(os.environ.get(FOLDER_VARIABLE) or Path(run.folder).parent)
        for before in file_of(folder / "wandb", f"offline-run-*-{run.token}"):
            shutil.rmtree(before)
        self._token = run.token
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            id=run.token,
            name=run.title,
            dir=folder,
            resume="allow",
            config=dict(run.settings),
            allow_val_change=True,
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,
                disable_code=True,
                disable_job_creation=True,
                x_disable_meta=True,
                x_disable_stats=True,
                x_save_requirements=False,
            ),
        )
        return 0 if self._run.offline else self._run.step - 1

    def log(self, steps: Sequence[Step]) -> None:
        """Log each iteration as one row of the history."""
        if self._run:
            for iteration, values in steps:
                self._run.log(dict(values), step=iteration, commit=True)

    def end(self, end: TrackedEnd) -> None:
        """Log the files, and finish the run."""
        if self._run is None:
            return
        self._run.summary["stop_reason"] = end.reason
        if end.files:
            artifact = wandb.Artifact(f"costada-{self._token}", type="costada-run")
            for name, text in end.files.items():
                if Path(text).is_dir():
                    artifact.add_dir(text, name=name)
                else:
                    artifact.add_file(text)
            self._run.log_artifact(artifact)
        self._run.finish(exit_code=int(end.has_failed))
