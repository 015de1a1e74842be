"""Where the runs of a sweep execute: on this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from costada.experiments.sweep.local import LocalEngine
from costada.experiments.sweep.loop import Process
from costada.experiments.sweep.sweep import Status, SweepRun

SLURM, DASK, RAY = "slurm", "dask://", "ray://"
MINUTES = 60
"""Time limit of a job on Slurm; one that reaches it is requeued and resumes."""

EXPECTED = "slurm, dask://HOST:PORT, ray://HOST:PORT or ray:// (the Ray cluster of this machine)"


class Engine(Protocol):
    """This machine, or a cluster whose nodes find the run folders at the paths they have here."""

    @property
    def leaving(self) -> str:
        """What Ctrl-C does, in a sentence for the user."""

    @property
    def outlives_command(self) -> bool:
        """Whether jobs continue when the command ends."""

    def active(self) -> Mapping[str, Status]:
        """The runs that have a queued or running job of an earlier command, by name."""

    def prepare(self, runs: Sequence[SweepRun]) -> None:
        """Submit runs that will be started together.

        Raises:
            ValueError: If the cluster refuses them.
            OSError: If it does not respond.
        """

    def start(self, run: SweepRun) -> Process:
        """The job of a run; raises `OSError` if the cluster does not respond."""


@contextmanager
def engine_on(
    address: str | None, out: Path, parameters: Mapping[str, str | bool], num_jobs: int | None
) -> Iterator[Engine]:
    """The engine at an address, connected during the block.

    Args:
        address: See `EXPECTED`; `None`: this machine.
        out: Folder of the sweep.
        parameters: Options of `sbatch` by name; only for Slurm.
        num_jobs: Maximum number of parallel runs; `None`: what the cluster allows.

    Raises:
        ValueError: If there is no such cluster, a library is missing, or it takes no parameters.
        OSError: If the cluster cannot be reached.
    """
    if parameters and address != SLURM:
        raise ValueError("--slurm: needs --on slurm")
    if address is None:
        yield LocalEngine()
    elif address == SLURM:
        from costada.experiments.sweep.slurm_engine import SlurmEngine

        yield SlurmEngine(out, parameters, num_jobs)
    elif "@" in address:
        raise ValueError("--on: got an address with an @, expected no user and no password in it")
    elif address.startswith(DASK):
        from costada.experiments.sweep.dask_engine import connected_to_dask

        with connected_to_dask(address, out) as dask:
            yield dask
    elif address.startswith(RAY):
        from costada.experiments.sweep.ray_engine import connected_to_ray

        with connected_to_ray(address, out) as ray:
            yield ray
    else:
        raise ValueError(f"--on: got {address!r}, expected {EXPECTED}")
