"""What evaluations in other processes cost, and how many workers make, beside this process.

    python bench/remote.py [--workers 8] [--evaluations 60] [--engines local,pool,dask,ray]

Overhead: one program that takes no time is evaluated again and again, one evaluation at a time, in
this process and by each engine in turn, so that all see the same machine; the difference of the
medians is what the engine adds. Throughput: candidates that wait (0.2 s each, as a program that
uses a GPU or a server does) are evaluated by all workers at once, in this process and by the engine
in turn; ideal is one after the other in each worker. Dask and Ray are started on this machine for
it. An engine whose extra is not installed is left out, and said so.
"""

import argparse
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from secrets import token_hex
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter, sleep

from costada.evaluators.problem import Problem, confine
from costada.evaluators.registry import problem
from costada.evaluators.remote.backend import EngineBackend
from costada.evaluators.remote.engine import Engine, ExecutorEngine, shared_engine
from costada.plugins.engines.dask import DaskEngine
from costada.plugins.engines.local import LocalEngine
from costada.values.candidate import Program

SCRIPTS = Path(sys.executable).parent
ENGINES = ("local", "pool", "dask", "ray")
WAIT_SECONDS = 0.2
WARMING_SECONDS = 120.0
MAX_MILLISECONDS = 15.0
ROUNDS = 5
"""How often throughput is measured in this process and by an engine, in turn."""


@contextmanager
def local(workers: int) -> Iterator[Engine]:
    """Worker processes of `--evaluate-on local:N`."""
    engine = LocalEngine(f"local:{workers}")
    yield engine
    engine.close()


@contextmanager
def pool(workers: int) -> Iterator[Engine]:
    """A pool of the standard library."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as executor:
        yield ExecutorEngine(executor)


@contextmanager
def dask(workers: int) -> Iterator[Engine]:
    """A scheduler and its workers, in processes of their own."""
    from distributed import Client

    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True)))
        file = folder / "scheduler.json"

        def start(*words: str) -> None:
            process = subprocess.Popen(
                [SCRIPTS / "dask", *words, "--no-dashboard", "--scheduler-file", file],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)

        start("scheduler", "--host", "127.0.0.1", "--port", "0")
        end = monotonic() + WARMING_SECONDS
        while not file.is_file():
            assert monotonic() < end, "no scheduler has started"
            sleep(0.1)
        one_each = ("--nworkers", str(workers), "--nthreads", "1")
        start("worker", *one_each, "--local-directory", str(folder))
        with Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=WARMING_SECONDS)
            place = client.scheduler.address.removeprefix("tcp://")
        engine = DaskEngine(f"dask://{place}")
        yield engine
        engine.close()


@contextmanager
def ray(workers: int) -> Iterator[Engine]:
    """A node with so many workers."""
    # The cluster takes this process alone; Ray reads this when it is imported.
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token_hex(32))
    import ray as package

    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="r", ignore_cleanup_errors=True))
        bound = stack.enter_context(closing(socket.socket()))
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        bound.close()
        words = ["start", "--head", "--block", "--num-cpus", str(workers), "--port", "0"]
        words += ["--memory", str(workers * 4 * 2**30), "--temp-dir", folder]
        words += ["--min-worker-port", "0", "--max-worker-port", "0"]
        words += ["--ray-client-server-port", str(port), "--include-dashboard", "false"]
        process = subprocess.Popen(
            [SCRIPTS / "ray", *words, "--disable-usage-stats"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "RAY_TMPDIR": folder},
        )
        stack.callback(process.wait)
        stack.callback(process.terminate)
        engine = shared_engine(f"ray://127.0.0.1:{port}")
        yield engine
        package.shutdown()


def judged_by(found: Problem, engine: Engine | None) -> Problem:
    """The problem, judged by an engine or in this process."""
    return confine(replace(found, backend=engine and EngineBackend(engine)))


def warm(found: Problem, program: Program, workers: int) -> None:
    """Evaluate until each worker has its sandbox."""
    seen: set[str] = set()
    end = monotonic() + WARMING_SECONDS
    waiting = Program.of(f"import time\ntime.sleep({WAIT_SECONDS})\n{program.text}")
    with ThreadPoolExecutor(workers) as threads:
        while len(seen) < workers and monotonic() < end:
            judged = threads.map(lambda _: found.evaluate_program(waiting, "bench"), range(workers))
            seen |= {each.artifacts.get("worker", str(place)) for place, each in enumerate(judged)}


def one(found: Problem, program: Program) -> float:
    """Seconds of one evaluation."""
    start = perf_counter()
    assert found.evaluate_program(program, "bench").is_valid
    return perf_counter() - start


def overhead(here: Problem, there: Problem, program: Program, number: int) -> tuple[float, float]:
    """Medians of an evaluation here and there, in milliseconds, in alternation."""
    pairs = [(one(here, program), one(there, program)) for _ in range(number)]
    return median(a for a, _ in pairs) * 1000, median(b for _, b in pairs) * 1000


def throughput(found: Problem, program: Program, workers: int) -> float:
    """Evaluations per second of programs that wait, with all workers."""
    number = workers * 5
    waiting = Program.of(f"import time\ntime.sleep({WAIT_SECONDS})\n{program.text}")
    start = perf_counter()
    with ThreadPoolExecutor(workers) as threads:
        verdicts = list(
            threads.map(lambda _: found.evaluate_program(waiting, "bench"), range(number))
        )
    assert all(each.is_valid for each in verdicts)
    return number / (perf_counter() - start)


def main() -> None:
    """Print one line for each engine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--engines", default=",".join(ENGINES))
    given = parser.parse_args()
    found = problem("heilbronn_convex")
    program = found.start
    here = replace(judged_by(found, None), evaluations_at_once=given.workers)
    warm(here, program, given.workers)
    ideal = given.workers / WAIT_SECONDS
    heads = ("here", "there", "adds", "here", "there", "of here")
    print(f"{'':8} {'one evaluation':>29} {'evaluations per second':>29}")
    print(f"{'engine':8} " + " ".join(f"{head:>9}" for head in heads))
    for name in given.engines.split(","):
        module = {"dask": "distributed", "ray": "ray"}.get(name)
        if module and not find_spec(module):
            print(f"{name:8} not installed")
            continue
        with {"local": local, "pool": pool, "dask": dask, "ray": ray}[name](
            given.workers
        ) as engine:
            there = judged_by(found, engine)
            warm(there, program, given.workers)
            mine, theirs = overhead(here, there, program, given.evaluations)
            rates = [
                [throughput(found, program, given.workers) for found in (here, there)]
                for _ in range(ROUNDS)
            ]
        my_rate, rate = (median(each) for each in zip(*rates, strict=True))
        adds = theirs - mine
        mark = "" if adds < MAX_MILLISECONDS else f"  above {MAX_MILLISECONDS:g} ms"
        numbers = f"{mine:6.1f} ms {theirs:6.1f} ms {adds:6.1f} ms {my_rate:9.1f} {rate:9.1f}"
        print(f"{name:8} {numbers} {rate / my_rate:9.0%}{mark}")
    print(f"ideal: {ideal:.0f} per second ({given.workers} workers, {WAIT_SECONDS} s each)")


if __name__ == "__main__":
    main()
