"""The process of a user: has keys in its environment and evaluates one program after the other.

Reads requests from standard input, one JSON line each, and writes a record of each evaluation
to standard output.
"""

import json
import os
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from socket import socket
from time import monotonic

from costada.evaluators.problem_fields import Evaluator
from costada.evaluators.registry import problem
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits


@cache
def limited_evaluator(
    layer: Layer, wall_seconds: float, memory_mb: int, *, has_models: bool
) -> Evaluator:
    limits = Limits(
        wall_seconds=wall_seconds, memory_mb=memory_mb, result_bytes=MEBIBYTE, scratch_mb=64
    )
    evaluate = replace(problem("circle_packing"), sandbox=layer, limits=limits).evaluate
    # Models that answer nobody.
    return replace(evaluate, connect=socket.close) if has_models else evaluate


def main() -> None:
    layer, has_models = Layer(sys.argv[1]), sys.argv[2:] == ["models"]
    try:
        print(json.dumps({"layer": chosen_layer(layer)}), flush=True)
    except ValueError as error:
        print(json.dumps({"unavailable": str(error)}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        started = monotonic()
        wall_seconds, memory_mb = request["wall_seconds"], request["memory_mb"]
        evaluate = limited_evaluator(layer, wall_seconds, memory_mb, has_models=has_models)
        evaluation = evaluate(request["source"])
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        record = {
            "wall": monotonic() - started,
            "score": evaluation.score,
            "objective": evaluation.objective,
            "is_valid": evaluation.is_valid,
            "error": evaluation.error,
            "artifacts": dict(evaluation.artifacts),
            "fds": len(os.listdir("/proc/self/fd")),
            "resident_mb": pages * os.sysconf("SC_PAGE_SIZE") // MEBIBYTE,
        }
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
