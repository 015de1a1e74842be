"""The process of a user: has keys in its environment and evaluates one program after the other.

Reads requests from standard input, one JSON line each, and writes a record of each evaluation
to standard output.
"""

import json
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from time import monotonic

from costada.evaluators.problem import Problem
from costada.evaluators.registry import problem
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits


def limited(layer: str, wall_seconds: float, memory_mb: int) -> Problem:
    """Return the benchmark with short limits and a layer."""
    limits = Limits(
        wall_seconds=wall_seconds, memory_mb=memory_mb, result_bytes=MEBIBYTE, scratch_mb=64
    )
    return replace(problem("circle_packing"), sandbox=Layer(layer), limits=limits)


def greeting(layer: str) -> dict[str, str]:
    """Return the layer, or why this machine does not offer it."""
    try:
        return {"layer": chosen_layer(Layer(layer))}
    except ValueError as error:
        return {"unavailable": str(error)}


def main() -> None:
    """Answer requests until there are none."""
    layer = sys.argv[1]
    print(json.dumps(greeting(layer)), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        started = monotonic()
        asked = limited(layer, request["wall_seconds"], request["memory_mb"])
        verdict = asked.evaluate(request["source"])
        record = {
            "wall": monotonic() - started,
            "score": verdict.score,
            "objective": verdict.objective,
            "is_valid": verdict.is_valid,
            "error": verdict.error,
            "artifacts": dict(verdict.artifacts),
            "metrics": dict(verdict.metrics),
            "fds": len(os.listdir("/proc/self/fd")),
            "threads": threading.active_count(),
            "resident_mb": _resident_mb(),
        }
        print(json.dumps(record), flush=True)


def _resident_mb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // MEBIBYTE


if __name__ == "__main__":
    main()
