"""What `costada run` costs beside its model calls: its start, CPU per iteration, its end.

Circle packing with the real client and the real sandbox, against a loopback server that answers at
once. The start is compared with the time in which a fresh interpreter imports `langgraph.graph` and
`langchain_openai`, measured by turns with it. CPU is that of the command and of all its processes;
the windows show whether it grows with the run.

    python bench/run_overhead.py [--iterations 1000] [--repeats 5]
"""

import argparse
import subprocess
import sys
import time
from itertools import pairwise
from statistics import median

from loopback import constant
from parallel import Measured, measured

IMPORTS = "import langgraph.graph, langchain_openai"
SHORT = 10
WINDOWS = 4
AT_ONCE = constant(0.0)


def import_seconds() -> float:
    """Seconds in which a fresh interpreter imports what every run needs."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)
    return time.monotonic() - began


def cpu_in_windows(run: Measured) -> list[tuple[int, float]]:
    """The last request of each window, and CPU milliseconds per request in it."""
    ends = sorted(call.ended for call in run.calls)
    size = len(ends) // WINDOWS
    marks = [0.0] + [used_until(ends[(n + 1) * size - 1], run) for n in range(WINDOWS)]
    marks[0] = used_until(ends[0], run)
    shares = [(later - before) / size for before, later in pairwise(marks)]
    return [((n + 1) * size, 1e3 * share) for n, share in enumerate(shares)]


def used_until(moment: float, run: Measured) -> float:
    """CPU seconds until a moment, between two samples by a line."""
    before = max(sample for sample in run.cpu_samples if sample[0] <= moment)
    after = min(sample for sample in run.cpu_samples if sample[0] >= moment)
    share = (moment - before[0]) / ((after[0] - before[0]) or 1.0)
    return before[1] + share * (after[1] - before[1])


def main() -> None:
    """Print the medians of short runs, and the CPU of a long one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=1000, help="of the long run, about")
    parser.add_argument("--repeats", type=int, default=5, help="of the short runs")
    parser.add_argument("more", nargs="*", help="options for `costada run`, after --")
    given = parser.parse_args()
    imports, runs = [], []
    for seed in range(given.repeats):
        imports.append(import_seconds())
        runs.append(measured(AT_ONCE, 1, SHORT, seed, given.more))
    start = median(run.start for run in runs)
    print(f"start: {start:.2f} s to the first request, imports alone {median(imports):.2f} s")
    print(f"end: {median(run.end for run in runs):.2f} s after the last answer")
    run = measured(AT_ONCE, 1, given.iterations, 0, given.more)
    for last, milliseconds in cpu_in_windows(run):
        print(f"CPU up to request {last:6}: {milliseconds:6.2f} ms per request")
    print(f"CPU per iteration: {run.cpu_per_iteration:.2f} ms")
    print(f"end: {run.end:.2f} s after the last answer of {len(run.costs)} iterations")


if __name__ == "__main__":
    main()
