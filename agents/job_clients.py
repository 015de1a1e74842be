"""What clients of a queue do: they add runs to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from costada.runs.config import checked_config
from costada.runs.folder import default_names
from costada.runs.shared_purse import PurseAddress
from costada.runs.stored_run import check_name
from costada.store.job_queue import JobQueue


def add_jobs(
    database: str,
    team: str,
    chosen: Mapping[str, object],
    seeds: Sequence[int],
    priority: int = 0,
    name: str | None = None,
) -> list[str]:
    """Add a job for each seed, and return the names of their runs.

    Args:
        database: The address of the queue.
        team: The team whose purse pays for the runs.
        chosen: The problem, the budget of each run, and a target, if any.
        seeds: The seeds.
        priority: Jobs of the team with a higher one start first.
        name: Of the run; several are called `NAME/seed-N`. `None` for `PROBLEM-1` and so on.

    Raises:
        ValueError: A setting or a name is invalid or taken, or no server knows the team; then no
            job is added.
        OSError: The server cannot be reached.
    """
    jobs = [{**chosen, "seed": seed} for seed in seeds]
    for each in jobs:
        checked_config(each)
    if name is not None:
        check_name(name)
    try:
        PurseAddress(database, team).open().close()
    except ValueError:
        raise ValueError(f"--team: got {team!r}, expected a team of its servers") from None
    with JobQueue(database) as queue:
        while True:
            names = _names(queue, str(chosen["problem"]), seeds, name)
            taken = queue.add(team, priority, dict(zip(names, jobs, strict=True)))
            if not taken:
                return names
            if name is not None:
                raise ValueError(f"--name: got {name!r}, but {taken!r} is taken; choose another")


def _names(queue: JobQueue, problem: str, seeds: Sequence[int], name: str | None) -> list[str]:
    """Names for the run of each seed."""
    if name is not None:
        return [name] if len(seeds) == 1 else [f"{name}/seed-{each}" for each in seeds]
    taken = queue.taken()
    free = (each for each in default_names(problem) if each not in taken)
    return [*islice(free, len(seeds))]
