"""How fast candidates are evaluated: a clean process for each, against a fresh interpreter.

Every way takes its turn in every round, so that what else the machine does weighs on all alike.
Times are in milliseconds. The candidate imports NumPy, or NumPy and SciPy; a fresh interpreter that
imports the same takes so many times as long as an evaluation, as the last column of the first table
says. For CPU-bound candidates, ratios compare with a bare
interpreter: of the shortest and the median time on the wall clock, and of the median CPU time.
The last table is of evaluations after a pause, as after a model's answer: the process for the next
candidate is ready by then.

    python bench/evaluations.py [--rounds 5] [--evaluations 20] [--quick]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from threading import Barrier

from costada.evaluators.problem_fields import Evaluator
from costada.evaluators.registry import problem
from costada.evaluators.sandbox.candidate_runs import run_candidate
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot import SLOTS

FRESH_PER_ROUND = 4
PAUSE_SECONDS = 0.05
CIRCLES = """
import numpy as np

def run_packing():
    k = np.arange(5) * 0.2 + 0.1
    centers = np.vstack([np.column_stack([np.repeat(k, 5), np.tile(k, 5)]), [[0.8, 0.8]]])
    radii = np.append(np.full(25, 0.099), 0.04)
    return centers, radii, float(radii.sum())
"""
PRINTED = """
import json
centers, radii, total = run_packing()
print(json.dumps([centers.tolist(), radii.tolist(), total]))
"""
WORK = """
import time
import numpy as np
from scipy.optimize import minimize

def work():
    matrix = np.random.default_rng(0).random((150, 150))
    started = [time.perf_counter(), time.process_time()]
    for _ in range(24):
        minimize(lambda x: ((x - 1) ** 2).sum() + np.abs(x).sum(), np.zeros(40), method="SLSQP")
    for _ in range(60):
        np.linalg.svd(matrix)
    total = 0
    for number in range(7_000_000):
        total += number * number % 7
    ended = [time.perf_counter(), time.process_time()]
    return [(end - start) * 1000 for start, end in zip(started, ended)]
"""
FIRST = """
import sys
from costada.evaluators.problem_fields import Evaluator
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.candidate_runs import run_candidate
layer = chosen_layer(Layer.AUTO)
source = "import time\\nstarted = time.monotonic()\\ndef first(): return started"
print(run_candidate(source, "first", Limits(), layer=layer).output)
"""
LAYERS = (Layer.PROCESS, Layer.LANDLOCK, Layer.BUBBLEWRAP, Layer.CONTAINER)
IMPORTS = {"numpy": "", "numpy + scipy": "import scipy.optimize\n"}
"""What a candidate imports besides NumPy, by the name of that."""


@dataclass
class Way:
    """One way to evaluate the circles, and how long it took.

    Attributes:
        evaluate: Evaluates them once.
        count: Evaluations on each worker in each round.
        times: Milliseconds of each evaluation, on one worker.
        rates: Evaluations per second in each round, by the number of workers.
    """

    evaluate: Callable[[], object]
    count: int
    times: list[float] = field(default_factory=list)
    rates: dict[int, list[float]] = field(default_factory=lambda: {1: [], 2: []})

    def take_turn(self) -> None:
        """Evaluate on one worker, then on two; what is started for it does not count."""
        SLOTS.close()
        in_two_threads(self.evaluate, 1)
        taken = [timed(self.evaluate) for _ in range(self.count)]
        self.times += taken
        self.rates[1].append(1e3 * self.count / sum(taken))
        self.rates[2].append(2e3 * self.count / in_two_threads(self.evaluate, self.count))


def in_two_threads(evaluate: Callable[[], object], count: int) -> float:
    """The milliseconds that two threads take for so many calls each."""

    def repeat(start: Barrier) -> None:
        start.wait()
        for _ in range(count):
            evaluate()

    start = Barrier(3)
    with ThreadPoolExecutor(2) as workers:
        turns = [workers.submit(repeat, start) for _ in range(2)]
        start.wait()
        return timed(lambda: [turn.result() for turn in turns])


def timed(evaluate: Callable[[], object]) -> float:
    """The milliseconds that a call takes."""
    started = time.perf_counter()
    evaluate()
    return (time.perf_counter() - started) * 1e3


def fresh(source: str, *, with_threads: bool = True) -> str:
    """What a program prints that is run as a file in an interpreter of its own."""
    environment = dict(os.environ)
    if not with_threads:
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "candidate.py")
        path.write_text(source)
        command = [sys.executable, str(path)]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=environment
        ).stdout


def evaluated_fresh(preamble: str) -> None:
    """Evaluate the circles in a fresh interpreter that imports something first."""
    centers, radii, total = json.loads(fresh(preamble + CIRCLES + PRINTED))
    assert (len(centers), len(radii), round(total, 9)) == (26, 26, 2.515)


def evaluated_by(evaluate: Evaluator, preamble: str) -> None:
    """Evaluate the circles in the sandbox, score included."""
    assert evaluate(preamble + CIRCLES).is_valid


def layers_here() -> list[Layer]:
    """The layers that work on this machine; tell why the others do not."""
    found = []
    for layer in LAYERS:
        try:
            found.append(chosen_layer(layer))
        except ValueError as error:
            print(f"left out: {error}")
    return found


def print_rates(layers: list[Layer], rounds: int, evaluations: int) -> None:
    """Print how long an evaluation takes each way, and the ratios."""
    ways: dict[tuple[str, str], Way] = {}
    for modules, preamble in IMPORTS.items():
        count = min(FRESH_PER_ROUND, evaluations)
        ways["fresh", modules] = Way(partial(evaluated_fresh, preamble), count)
        for layer in layers:
            evaluator = replace(problem("circle_packing"), sandbox=layer).evaluate
            ways[layer, modules] = Way(partial(evaluated_by, evaluator, preamble), evaluations)
    for _ in range(rounds):
        for way in ways.values():
            way.take_turn()
    print(f"{'':26}{'ms per evaluation':^27}{'per second':^18}{'times':>8}")
    print(f"{'':26}{'min':>9}{'median':>9}{'p95':>9}{'1 worker':>9}{'2':>9}{'fresh':>8}")
    for (name, modules), way in ways.items():
        late = quantiles(way.times, n=20)[-1]
        rates = [median(way.rates[workers]) for workers in (1, 2)]
        ratio = median(ways["fresh", modules].times) / median(way.times)
        figures = (min(way.times), median(way.times), late, *rates)
        cells = "".join(f"{figure:9.1f}" for figure in figures)
        print(f"{f'{name}, {modules}':26}{cells}{ratio:8.1f}")


def print_cpu_bound(layers: list[Layer], rounds: int) -> None:
    """Print how long a CPU-bound candidate takes in each layer, timed by itself, and bare."""
    bare = partial(fresh, f"{WORK}\nprint(work())", with_threads=False)
    times: dict[str, list[list[float]]] = {name: [] for name in ("bare", *layers)}
    for _ in range(rounds):
        times["bare"].append(json.loads(bare()))
        for layer in layers:
            output = run_candidate(WORK, "work", Limits(), layer=layer).output
            assert isinstance(output, list)
            times[layer].append(output)
    print(f"\n{'':22}{'ms on the wall':^18}{'CPU ms':^9}{'ratio to bare':^27}")
    print(f"{'CPU-bound candidate':22}{'min':>9}{'median':>9}{'median':>9}", end="")
    print(f"{'min':>9}{'median':>9}{'CPU':>9}")
    plain = figures(times["bare"])
    for name, taken in times.items():
        own = figures(taken)
        ratios = [a / b for a, b in zip(own, plain, strict=True)]
        print(f"{name:22}" + "".join(f"{figure:9.1f}" for figure in own), end="")
        print("".join(f"{ratio:9.3f}" for ratio in ratios))


def figures(taken: list[list[float]]) -> tuple[float, float, float]:
    """Least and median of the first of each pair, and the median of the second."""
    wall, cpu = zip(*taken, strict=True)
    return min(wall), median(wall), median(cpu)


def print_after_pause(layers: list[Layer], rounds: int, evaluations: int) -> None:
    """Print how long an evaluation takes that comes a while after the one before."""

    def paused(evaluate: Callable[[], None]) -> float:
        time.sleep(PAUSE_SECONDS)
        return timed(evaluate)

    times: dict[Layer, list[float]] = {layer: [] for layer in layers}
    for _ in range(rounds):
        for layer in layers:
            SLOTS.close()
            evaluator = replace(problem("circle_packing"), sandbox=layer).evaluate
            evaluate = partial(evaluated_by, evaluator, "")
            evaluate()
            times[layer] += [paused(evaluate) for _ in range(evaluations)]
    print(f"\n{'ms after a pause':22}{'min':>9}{'median':>9}{'p95':>9}")
    for layer, taken in times.items():
        cells = (min(taken), median(taken), quantiles(taken, n=20)[-1])
        print(f"{layer:22}" + "".join(f"{cell:9.1f}" for cell in cells))


def print_first(rounds: int) -> None:
    """Print how long it takes from a new process to the first line of its first candidate."""
    times = []
    for _ in range(rounds):
        started = time.monotonic()
        times.append((float(fresh(FIRST)) - started) * 1e3)
    print(f"\n{'first candidate':22}{min(times):9.1f}{median(times):9.1f}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="two rounds of five evaluations")
    options = parser.parse_args()
    rounds, evaluations = (2, 5) if options.quick else (options.rounds, options.evaluations)
    layers = layers_here()
    print_rates(layers, rounds, evaluations)
    print_cpu_bound(layers, rounds)
    print_first(rounds)
    print_after_pause(layers, rounds, evaluations)


if __name__ == "__main__":
    main()
