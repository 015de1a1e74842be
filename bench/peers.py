"""CostAda beside OpenEvolve and GEPA: cost of a step, K calls in flight, and what mishaps cost.

All work on the same program with the same evaluator against the same loopback provider, with their
own defaults otherwise. Install the others in an environment of their own:

    python -m venv peers && peers/bin/pip install openevolve gepa litellm
    python bench/peers.py --openevolve peers/bin/openevolve-run --gepa peers/bin/python

The first tables (`bench/step_costs.py`) are about what a step costs beside its call, and say which
targets are missed. The next is about speed: calls of a constant 0.75 s, or log-normal ones with a
median of 0.75 s and a 95 % point of 2.5 s. `seconds` count from the first request to the last
answer, `wall` is the whole command, and `speed-up` is calls per second against K = 1 of the same
tool. The next says by how much the provider's bill exceeds a budget. The last counts the requests
that a provider gets when something goes wrong with CostAda and with OpenEvolve, for ten iterations.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from billing_server import Answer, BillingServer, Body, Refusal, Reply
from loopback import Call, Latency, Loopback, constant, log_normal
from peer_tools import (
    ENVIRONMENT,
    GOOD,
    ITERATIONS,
    PRICE_IN,
    PRICE_OUT,
    PROGRAM,
    Limits,
    Peers,
    Tool,
    costada,
    openevolve,
    programs,
    write_problem,
)
from step_costs import print_costs

LATENCY = 0.3
"""Seconds that the provider takes to answer."""

LATENCIES = {"constant": constant(0.75), "log-normal": log_normal(0.75, 2.5)}
SHORT = log_normal(0.04, 0.13)
"""Of the runs that end by their budget."""

CALLS, CALLS_APART = 40, 0.7
"""What the smallest budget buys, and what the next one buys on top."""

BROKEN = "def evaluate(program_path):\n    raise RuntimeError('a library is missing')\n"


@dataclass
class Provider:
    """Answers each request with another program, or knows no model of that name."""

    knows_model: bool = True
    requests: int = 0

    def answer(self, body: Body) -> Answer:
        """The answer to a request, which is counted."""
        self.requests += 1
        time.sleep(LATENCY)
        if not self.knows_model:
            return Refusal(404, "the model does not exist")
        value = 1 + 0.1 * self.requests
        return Reply(f"```python\n{PROGRAM.replace('0.1', f'{value:.2f}')}```")


def run(command: list[str]) -> int:
    """The exit code of a command that is silent and has a key that opens nothing."""
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, timeout=600).returncode


def bill(calls: Sequence[Call]) -> float:
    """Dollars of calls."""
    return (
        sum(PRICE_IN * call.input_tokens + PRICE_OUT * call.output_tokens for call in calls) / 1e6
    )


def calls_of(
    name: str, peers: Peers, latency: Latency, limits: Limits
) -> tuple[list[Call], float, str]:
    """The calls that a tool makes within limits, the seconds that it takes, and what went wrong."""
    with Loopback(latency, programs) as server, tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "problem")
        write_problem(folder, server.url, GOOD, limits)
        began = time.monotonic()
        code = run(peers.tools(server.url, limits)[name].begin(folder))
        seconds = time.monotonic() - began
        return server.take_calls(), seconds, f"  exit code {code}" if code else ""


def print_speed(peers: Peers, iterations: int, parallel: int) -> dict[str, float]:
    """Print calls per second of each tool, with one call in flight and with several.

    Returns the dollars that a call costs on average, by tool.
    """
    costs = dict[str, float]()
    names = list(peers.tools("", Limits()))
    print(f"{'latency':12}{'tool':12}{'K':>3}{'calls':>7}{'seconds':>9}{'wall':>8}{'speed-up':>10}")
    for kind, latency in LATENCIES.items():
        single = dict.fromkeys(names, 0.0)
        for in_flight in (1, parallel):
            for name in names:
                limits = Limits(iterations, 100.0, in_flight)
                calls, wall, wrong = calls_of(name, peers, latency, limits)
                seconds = max(c.ended for c in calls) - min(c.began for c in calls)
                rate = len(calls) / seconds
                costs[name] = bill(calls) / len(calls)
                single[name] = single[name] or rate
                print(
                    f"{kind:12}{name:12}{in_flight:3}{len(calls):7}{seconds:9.1f}{wall:8.1f}"
                    f"{rate / single[name]:10.2f}{wrong}",
                    flush=True,
                )
    return costs


def print_overshoot(peers: Peers, costs: dict[str, float], runs: int, parallel: int) -> None:
    """Print how far bills lie beyond budgets of some 40 calls; OpenEvolve knows no budget."""
    print(f"\n{'tool':12}{'K':>3}{'runs':>7}{'calls':>7}{'mean over %':>13}{'max over %':>12}")
    for in_flight in (1, parallel):
        for name in [name for name in costs if name != "OpenEvolve"]:
            shares, number = [], 0
            for index in range(runs):
                budget = costs[name] * (CALLS + CALLS_APART * index)
                calls, _, _ = calls_of(name, peers, SHORT, Limits(10_000, budget, in_flight))
                shares.append(100 * (bill(calls) / budget - 1))
                number += len(calls)
            print(
                f"{name:12}{in_flight:3}{runs:7}{number:7}{mean(shares):13.1f}{max(shares):12.1f}",
                flush=True,
            )


def killed_once(tool: Tool, folder: Path, provider: Provider) -> int:
    """Kill a run in the middle, let it go on, and return the exit code of that."""
    process = subprocess.Popen(
        tool.begin(folder),
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while provider.requests < ITERATIONS * 0.8 and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, 9)
    process.wait()
    return run(tool.go_on(folder))


MISHAPS: dict[str, tuple[Provider, str]] = {
    "none": (Provider(), GOOD),
    "unknown model": (Provider(knows_model=False), GOOD),
    "broken evaluator": (Provider(), BROKEN),
    "kill -9 at 8 of 10": (Provider(), GOOD),
}


@dataclass(frozen=True)
class Outcome:
    """Requests that arrived, exit code, seconds."""

    requests: int
    exit_code: int
    seconds: float


def outcome(mishap: str, program: str | None) -> Outcome:
    """What a mishap comes to with OpenEvolve's program, or with CostAda."""
    kind, evaluator = MISHAPS[mishap]
    provider = Provider(kind.knows_model)
    with BillingServer(default=provider.answer) as server, tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "problem")
        write_problem(folder, server.url, evaluator, Limits())
        tool = openevolve(program, Limits()) if program else costada(server.url, Limits())
        began = time.monotonic()
        is_killed = mishap.startswith("kill")
        code = killed_once(tool, folder, provider) if is_killed else run(tool.begin(folder))
        seconds = time.monotonic() - began
    return Outcome(provider.requests, code, seconds)


def print_mishaps(program: str | None) -> None:
    """Print a line for each mishap, for CostAda and OpenEvolve."""
    tools = {"CostAda": None} | ({"OpenEvolve": program} if program else {})
    print(f"\n{'mishap':20}{'tool':12}{'requests':>9}{'exit code':>10}{'seconds':>9}")
    for mishap in MISHAPS:
        for name, path in tools.items():
            found = outcome(mishap, path)
            counts = f"{found.requests:9}{found.exit_code:10}"
            print(f"{mishap:20}{name:12}{counts}{found.seconds:9.1f}", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--openevolve", help="its program", metavar="PATH")
    parser.add_argument("--gepa", help="an interpreter that has it", metavar="PYTHON")
    parser.add_argument("--iterations", type=int, default=96, help="of the table of speed")
    parser.add_argument("--parallel", type=int, default=8, metavar="K")
    parser.add_argument("--quick", action="store_true", help="32 iterations, 3 runs to the budget")
    parser.add_argument("--repeats", type=int, default=5, help="of the first tables; 0: none")
    given = parser.parse_args()
    peers = Peers(given.openevolve, given.gepa)
    runs = 3 if given.quick else 10
    if given.repeats:
        print_costs(peers, given.repeats)
    costs = print_speed(peers, 32 if given.quick else given.iterations, given.parallel)
    print_overshoot(peers, costs, runs, given.parallel)
    print_mishaps(given.openevolve)


if __name__ == "__main__":
    main()
