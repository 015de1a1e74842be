"""What clients of a queue do: they add runs to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from costada.runs.config import checked_config
from costada.runs.folder import default_names
from costada.runs.shared_purse import PurseAddress
from costada.runs.stored_run import run_at
from costada.store.job_queue import JobQueue
from costada.store.purse import MAX_DOLLARS
from costada.values.setting import unknown_name


def add_jobs(
    database: str,
    team: str,
    problem: str,
    chosen: Mapping[str, float],
    seeds: Sequence[int],
    priority: int = 0,
    name: str | None = None,
) -> list[str]:
    """Add a job for each seed, and return the names of their runs.

    Args:
        database: The address of the queue.
        team: The team whose purse pays for the runs.
        problem: A problem that servers of the queue offer.
        chosen: The budget of each run, and a target, if any.
        seeds: The seeds.
        priority: Jobs of the team with a higher one start first.
        name: Of the run; several are called `NAME/seed-N`. `None` for `PROBLEM-1` and so on.

    Raises:
        ValueError: A setting or a name is invalid or taken, no server knows the team, or servers
            run and none offers the problem; then no job is added.
        OSError: The server cannot be reached.
    """
    if len({*seeds}) < len(seeds):
        raise ValueError(f"--seeds: got {', '.join(map(str, seeds))}, expected different ones")
    jobs = [{**chosen, "seed": seed} for seed in seeds]
    for each in jobs:
        checked_config({**each, "problem": problem})
    own = [] if name is None else [name] if len(seeds) == 1 else [f"{name}/seed-{n}" for n in seeds]
    if not problem.isprintable():
        raise ValueError(f"PROBLEM: got {problem!r}, expected printable characters")
    if (budget := chosen["budget"]) >= MAX_DOLLARS:
        raise ValueError(f"--budget: got {budget:g}, expected less than {MAX_DOLLARS:g} dollars")
    for run in own:
        try:
            run_at(f"{database}#{run}")
        except ValueError as error:
            raise ValueError(f"--name: {str(error).removeprefix('run: ')}") from None
    with JobQueue(database) as queue:
        try:
            PurseAddress(database, team).open().close()
        except ValueError:
            raise ValueError(f"--team: got {team!r}, expected a team of its servers") from None
        # None while no server runs: the job waits for one that offers the problem.
        if (known := queue.offered()) and problem not in known:
            raise ValueError(unknown_name("problem", problem, sorted(known)))
        while True:
            names = own or _unused_names(queue, problem, len(jobs))
            taken = queue.add(team, problem, priority, dict(zip(names, jobs, strict=True)))
            if not taken:
                return names
            if own:
                raise ValueError(f"--name: got {name!r}, but {taken!r} is taken; choose another")


def _unused_names(queue: JobQueue, problem: str, number: int) -> list[str]:
    taken = queue.taken()
    return [*islice((each for each in default_names(problem) if each not in taken), number)]
