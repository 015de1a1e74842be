"""Kill two replicas that execute the runs of one Postgres database, and check every ledger.

.ci/postgres python tests/system/replicas.py [--runs 20] [--kills 200]

Each replica has its own working folder, takes any free run, and is restarted after each kill. At
the end the records of each run in the database are compared with the bill of its provider, and with
an undisturbed run in a folder, unless its calls land in the order of their answers.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise, product
from math import inf
from pathlib import Path
from random import Random

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from crash_runs import (  # noqa: E402
    CAP,
    EVALUATION,
    LATENCY,
    PRICE_IN,
    PRICE_OUT,
    Provider,
    Record,
    check_against_bill,
    record_of,
    run_to_end,
    serve,
    slow_evaluation,
)
from fakes import toy_problem  # noqa: E402
from langgraph.runtime import RunControl  # noqa: E402
from new_database import new_database  # noqa: E402
from warm import PROCESSES  # noqa: E402

from costada.models.chat_models import chat_model  # noqa: E402
from costada.plugins.gateway.gateway_of_run import stop_gateways  # noqa: E402
from costada.reports.progress import Progress  # noqa: E402
from costada.runs.folder import DEFAULT_PARENT, RunFolder  # noqa: E402
from costada.runs.plan import plan_run  # noqa: E402
from costada.runs.runner import execute_run, is_finished  # noqa: E402
from costada.runs.search_request import parse_request  # noqa: E402
from costada.runs.stored_run import StoredRun, run_at  # noqa: E402
from costada.store.address import shown_address  # noqa: E402
from costada.store.run_store import RunStore  # noqa: E402
from costada.values.usage import Price  # noqa: E402

METHODS = ("costada", "adaevolve", "evox", "uniform")
IN_FLIGHT = (1, 4, 1, 4, 4)
GATEWAY, LANDING = 1, 4
"""Places in `IN_FLIGHT` of the runs with a gateway in each replica's folder, and of those whose
calls land as they are answered."""

CALLS_BETWEEN_KILLS = 4
REPLICAS = ("A", "B")
WORK = "work.log"
"""File of a replica: a line for each time that it began to work on a run."""

HEAD = " run  method     K  order    gateway starts    takeovers  calls  lost  billed  same result"


@dataclass(frozen=True)
class Job:
    """One of the runs, and where its model answers."""

    seed: int
    url: str
    budget: float

    @property
    def name(self) -> str:
        return f"run-{self.seed}"

    @property
    def options(self) -> dict[str, object]:
        """The settings of the run; each method meets each number of calls in flight."""
        mode = self.seed // len(METHODS) % len(IN_FLIGHT)
        return {
            "seed": self.seed,
            "method": METHODS[self.seed % len(METHODS)],
            "budget": self.budget,
            "parallel": IN_FLIGHT[mode],
            "order": "landing" if mode == LANDING else "launch",
            "gateway": mode == GATEWAY,
            "lost_calls": "ignore",
        }

    @property
    def frontiers(self) -> Sequence[int]:
        """Those that have an archive."""
        return (0,) if self.options["method"] == "evox" else (0, 1)

    @property
    def is_repeatable(self) -> bool:
        return self.options["order"] == "launch"


def work(folder: Path, address: str, jobs: Sequence[Job], draw: int) -> None:
    """What a replica does: execute free runs until all are finished."""
    os.chdir(folder)
    rng, left = Random(draw), list(jobs)
    while left:
        job = rng.choice(left)
        run = run_at(f"{address}#{job.name}")
        assert isinstance(run, StoredRun)
        if run.is_running or not has_carried_out(run, job):
            time.sleep(0.02)
        else:
            left.remove(job)


def has_carried_out(run: StoredRun, job: Job) -> bool:
    """Execute a run to its end; `False` if the other replica has taken it."""
    model = chat_model("openai:stand-in", base_url=job.url, retry_wait=0, max_tokens=CAP)
    problem = toy_problem(evaluate=slow_evaluation)
    settings = {**job.options, "price": Price(PRICE_IN, PRICE_OUT)}
    given = parse_request(problem, model, (), None, None, settings)
    try:
        if run.claimed_at is None:
            run.claim(given.config)
        with run.hold():
            if not is_finished(run):
                with Path(WORK).open("a") as log:
                    log.write(f"{time.time()} {job.name}\n")
                execute_run(plan_run(given), run, Progress(), RunControl())
        return True
    except ValueError as error:
        if "already holds a run" in str(error) or "at work in this run" in str(error):
            return False
        raise


class Replicas:
    """The two processes, each in its own working folder."""

    def __init__(self, parent: Path, address: str, jobs: Sequence[Job]) -> None:
        self._folders = {name: parent / name for name in REPLICAS}
        self._address, self._jobs = address, jobs
        self._num_begun = 0
        for folder in self._folders.values():
            folder.mkdir()
        self.processes = {name: self._begun(name) for name in REPLICAS}

    def _begun(self, name: str):
        self._num_begun += 1
        given = (self._folders[name], self._address, self._jobs, self._num_begun)
        process = PROCESSES.Process(target=work, args=given)
        process.start()
        return process

    def kill(self, name: str) -> bool:
        """Kill a replica and start it again; `False` if it had nothing left to do."""
        process = self.processes[name]
        if not process.is_alive():
            assert process.exitcode == 0, f"replica {name} failed"
            return False
        process.kill()
        process.join()
        self.processes[name] = self._begun(name)
        return True

    def join(self) -> None:
        """Wait until all runs have ended."""
        for name, process in self.processes.items():
            process.join()
            assert process.exitcode == 0, f"replica {name} failed"

    def end(self) -> None:
        """End what is left of the processes and of their gateways."""
        for process in self.processes.values():
            process.kill()
            process.join()
        for folder, job in product(self._folders.values(), self._jobs):
            stop_gateways(RunFolder(folder / DEFAULT_PARENT / job.name))

    def workers(self, run: str) -> list[str]:
        """The replicas that worked on a run, one after the other."""
        lines = [
            (*line.split(), name)
            for name, folder in self._folders.items()
            if (folder / WORK).exists()
            for line in (folder / WORK).read_text().splitlines()
        ]
        return [
            name
            for _, known, name in sorted(lines, key=lambda line: float(line[0]))
            if known == run
        ]


def kill_often(replicas: Replicas, providers: Sequence[Provider], num_kills: int) -> int:
    """Kill one or the other replica at random instants; returns how often one was alive."""
    rng, num_hits = Random(num_kills), 0

    def num_calls() -> int:
        return sum(provider.billed.total() for provider in providers)

    for _ in range(num_kills):
        more = rng.randint(1, CALLS_BETWEEN_KILLS)
        last = num_calls() + more
        for provider in providers:
            provider.last_answered = provider.billed.total() + more + 2
        while num_calls() < last and any(each.is_alive() for each in replicas.processes.values()):
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 2 * (LATENCY + EVALUATION)))
        num_hits += replicas.kill(rng.choice(REPLICAS))
    for provider in providers:
        provider.last_answered = inf
    replicas.join()
    return num_hits


def stored_record(address: str, job: Job) -> Record:
    """What a run has in the database."""
    with RunStore.postgres(address, job.name, is_read_only=True) as store:
        (run_id,) = store.run_ids()
        best = store.last_improvement(run_id)
        program = store.candidates.get(run_id, best).program if best else toy_problem().start
        return Record(
            best_program=program.text,
            steps="".join(f"{line}\n" for line in store.step_lines(run_id)),
            calls=tuple(store.call_log.calls(run_id)),
            archives=tuple(
                tuple(row.program.text for row in store.candidates.archive(run_id, frontier, 10**9))
                for frontier in job.frontiers
            ),
            spent=store.ledger.spent(run_id, 10**9),
        )


def check(record: Record, provider: Provider) -> None:
    """Raise `AssertionError` if a call was repeated, or is not exactly on the ledger."""
    check_against_bill(record, provider)
    assert record.spent == sum((call.cost for call in record.done), Decimal(0))
    num_lost = provider.billed.total() - len(record.done)
    assert 0 <= num_lost <= len(record.lost)


def line_of(job: Job, record: Record, whole: Record | None, workers: Sequence[str], billed: int):
    """A line of the table."""
    given = job.options
    begun = f"{len(workers):>6}  {sum(a != b for a, b in pairwise(workers)):>11}"
    same = "" if whole is None else "yes" if record.result == whole.result else "NO"
    return (
        f"{job.seed:>4}  {given['method']:<9} {given['parallel']:>2}  {given['order']:<7}"
        f"  {'yes' if given['gateway'] else 'no':<7} {begun}"
        f"  {len(record.done):>5} {len(record.lost):>5}  {billed:>6}  {same}"
    )


def kill_replicas(parent: Path, address: str, seeds: Sequence[int], kills: int, budget: float):
    """Yield the lines of the table, last how many kills hit a living replica.

    Raises `AssertionError` where a ledger or a result is wrong.
    """
    RunStore.postgres(address).close()  # creates the tables
    with ExitStack() as servers:
        jobs, providers, wholes = [], [], []
        for seed in seeds:
            server, provider = serve()
            servers.enter_context(server)
            jobs.append(job := Job(seed, server.url, budget))
            providers.append(provider)
            whole = None
            if job.is_repeatable:
                run_to_end(parent / f"whole-{seed}", server.url, job.options)
                stop_gateways(RunFolder(parent / f"whole-{seed}"))
                whole = record_of(parent / f"whole-{seed}", job.frontiers)
                provider.forget()
            wholes.append(whole)
        yield HEAD
        replicas = Replicas(parent, address, jobs)
        try:
            hits = kill_often(replicas, providers, kills)
        finally:
            replicas.end()
        for job, provider, whole in zip(jobs, providers, wholes, strict=True):
            record = stored_record(address, job)
            check(record, provider)
            workers = replicas.workers(job.name)
            yield line_of(job, record, whole, workers, provider.billed.total())
            assert whole is None or record.result == whole.result
        yield f"{hits} of {kills} kills hit a living replica; every ledger is that of its provider"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--kills", type=int, default=200, help="of both replicas together")
    parser.add_argument("--budget", type=float, default=0.4, help="dollars of each run")
    given = parser.parse_args()
    server = os.environ["COSTADA_POSTGRES"]
    with tempfile.TemporaryDirectory() as folder, new_database(server) as conninfo:
        address, seeds = shown_address(conninfo), range(given.runs)
        for line in kill_replicas(Path(folder), address, seeds, given.kills, given.budget):
            print(line, flush=True)


if __name__ == "__main__":
    main()
