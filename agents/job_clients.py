"""What clients of a queue do: they add runs to it, and ask how far these are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Literal, TypedDict, cast

from costada.runs.config import checked_config
from costada.runs.folder import default_names
from costada.runs.shared_purse import NANODOLLAR, PurseAddress
from costada.runs.stored_run import run_at
from costada.store.address import RunAddress, check_database, shown_address
from costada.store.job_queue import STATES, JobQueue
from costada.store.purse import MAX_DOLLARS
from costada.values.setting import unknown_name

MAX_PRIORITY = 2**63 - 1

Chosen = Mapping[str, float | str]
"""Problem, budget and seed of a job, and a target, if any."""


class JobStatus(TypedDict):
    """How far a job of a queue is."""

    run: str
    """The address of its run."""

    team: str
    """The team whose purse pays for it."""

    problem: str
    """The name of its problem."""

    state: Literal["waiting", "running", "finished", "failed", "unpaid", "cancelled"]
    """What it does, or how it has ended."""

    stop_reason: str
    """Why its run has stopped, or why it was not executed; empty before."""

    error: str
    """What it failed with, or why it is tried again."""


def enqueue(
    database: str,
    problem: str,
    *,
    team: str,
    budget: float,
    seeds: Sequence[int] = (0,),
    target: float | None = None,
    priority: int = 0,
    name: str | None = None,
) -> list[str]:
    """Add runs to the queue of `costada serve`, and return their addresses.

    `job_status` says how far each is, and `load_run` reads it once it has started.

    Args:
        database: Address of the queue's database, `postgresql://USER@HOST/DATABASE`.
        problem: A problem that the servers offer, by its name.
        team: The team whose purse pays for the runs.
        budget: Dollars of each run (B).
        seeds: The seeds, one for each run.
        target: Score at which a run ends.
        priority: Runs of the team with a higher one start first.
        name: Of the run; several are called `NAME/seed-N`. By default `PROBLEM-1` and so on.

    Returns:
        The addresses of the runs in the order of the seeds, without the password.

    Raises:
        ValueError: An argument is wrong, a name is taken, no server knows the team, or servers run
            and none offers the problem; then no run is added.
        OSError: The server cannot be reached.
    """
    check_database(database, "database")
    if not isinstance(seeds, Sequence) or isinstance(seeds, str | bytes) or not seeds:
        raise ValueError(f"seeds: got {seeds!r}, expected a list of integers, one for each run")
    if type(priority) is not int or abs(priority) > MAX_PRIORITY:
        raise ValueError(
            f"priority: got {priority!r}, expected an integer from -{MAX_PRIORITY} to"
            f" {MAX_PRIORITY}"
        )
    chosen = {"budget": budget} | ({} if target is None else {"target": target})
    names = add_jobs(database, team, problem, chosen, seeds, priority, name)
    return [f"{shown_address(database)}#{run}" for run in names]


def job_status(address: str) -> JobStatus:
    """How far the job of a run is, also before the run has started.

    Args:
        address: What `enqueue` has returned.

    Raises:
        ValueError: It is not the address of a job.
        OSError: The server cannot be reached.
    """
    if not isinstance(address, str):
        raise ValueError(f"address: got {address!r}, expected what enqueue has returned")
    place = RunAddress.read(address)
    with JobQueue(place.database, is_read_only=True) as queue:
        for job in queue.jobs_of([place.run]):
            return JobStatus(
                run=str(place),
                team=job.team,
                problem=job.problem,
                state=cast('Literal["waiting"]', job.state(queue.live_servers())),
                stop_reason=job.ended,
                error=job.error,
            )
    raise ValueError(f"address: got {place}, expected that of a job in the queue")


def check_chosen(jobs: Sequence[Chosen]) -> None:
    """Raise `ValueError` if what jobs choose is invalid."""
    for each in jobs:
        if unset := [name for name, value in each.items() if value is None]:
            raise ValueError(f"{unset[0]}: got None, expected a value")
        checked_config(each)
        if not (problem := str(each["problem"])).isprintable():
            raise ValueError(f"problem: got {problem!r}, expected printable characters")
        if not NANODOLLAR <= (budget := float(each["budget"])) < MAX_DOLLARS:
            raise ValueError(
                f"budget: got {budget:g}, expected at least {NANODOLLAR:g} and less than"
                f" {MAX_DOLLARS:g} dollars"
            )


@contextmanager
def queue_of(database: str, team: str) -> Iterator[JobQueue]:
    """The queue of a team in a database, open during the block.

    Raises:
        ValueError: No server knows the team.
        OSError: The server cannot be reached.
    """
    with JobQueue(database) as queue:
        try:
            PurseAddress(database, team).open().close()
        except ValueError:
            raise ValueError(
                f"team: got {team!r}, expected a team of its servers, one of which has started"
            ) from None
        yield queue


def check_offered(queue: JobQueue, jobs: Sequence[Chosen]) -> None:
    """Raise `ValueError` if servers run and none offers the problem of a job."""
    # None while no server runs: the jobs wait for one that offers their problems.
    known = queue.offered()
    for problem in {str(each["problem"]) for each in jobs}:
        if known and problem not in known:
            raise ValueError(unknown_name("problem", problem, sorted(known)))


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
    jobs: list[Chosen] = [{**chosen, "problem": problem, "seed": seed} for seed in seeds]
    check_chosen(jobs)
    if len({*seeds}) < len(seeds):
        raise ValueError(f"seeds: got {', '.join(map(str, seeds))}, expected different ones")
    if name is not None and not isinstance(name, str):
        raise ValueError(f"name: got {name!r}, expected a string")
    own = [] if name is None else [name] if len(seeds) == 1 else [f"{name}/seed-{n}" for n in seeds]
    for run in own or islice(default_names(problem), 1):
        try:
            run_at(f"{database}#{run}")
        except ValueError as error:
            raise ValueError(f"name: {str(error).removeprefix('run: ')}") from None
        if run in STATES:
            raise ValueError(f"name: got {name!r}, which stands for all jobs in that state")
    with queue_of(database, team) as queue:
        check_offered(queue, jobs)
        while True:
            names = own or _unused_names(queue, problem, len(jobs))
            taken = queue.add(team, priority, dict(zip(names, jobs, strict=True)))
            if not taken:
                return names
            if own:
                raise ValueError(f"name: got {name!r}, but {taken!r} is taken; choose another")


def _unused_names(queue: JobQueue, problem: str, number: int) -> list[str]:
    """Default names that are free, the first after those that are taken one after another."""
    stem = next(default_names(problem)).removesuffix("1")

    def free(numbers: Iterable[int]) -> list[str]:
        names = [f"{stem}{each}" for each in numbers]
        taken = queue.taken(names)
        return [each for each in names if each not in taken]

    last, first = 0, 1
    while not free([first]):
        last, first = first, 2 * first
    while first - last > 1:
        middle = (last + first) // 2
        last, first = (last, middle) if free([middle]) else (middle, first)
    found: list[str] = []
    while len(found) < number:
        found += free(range(first, first + number))
        first += number
    return found[:number]
