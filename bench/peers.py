"""CostAda beside OpenEvolve and GEPA: speed with K calls in flight, and what mishaps cost.

All work on the same program with the same evaluator against the same loopback provider, with their
own defaults otherwise. Install the others in an environment of their own:

    python -m venv peers && peers/bin/pip install openevolve gepa litellm
    python bench/peers.py --openevolve peers/bin/openevolve-run --gepa peers/bin/python

The first table is about speed: calls of a constant 0.75 s, or log-normal ones with a median of
0.75 s and a 95 % point of 2.5 s. `seconds` count from the first request to the last answer, `wall`
is the whole command, and `speed-up` is calls per second against K = 1 of the same tool. The second
table says by how much the provider's bill exceeds a budget. The third counts the requests that a
provider gets when something goes wrong with CostAda and with OpenEvolve, for ten iterations.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from billing_server import Answer, BillingServer, Body, Refusal, Reply
from loopback import Call, Latency, Loopback, constant, log_normal

ITERATIONS = 10
LATENCY = 0.3
"""Seconds that the provider takes to answer."""

PRICE_IN, PRICE_OUT = 0.6, 1.92
"""Dollars per million tokens."""

LATENCIES = {"constant": constant(0.75), "log-normal": log_normal(0.75, 2.5)}
ENVIRONMENT = os.environ | {"OPENAI_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
SHORT = log_normal(0.04, 0.13)
"""Of the runs that end by their budget."""

CALLS, CALLS_APART = 40, 0.7
"""What the smallest budget buys, and what the next one buys on top."""

PROGRAM = "# EVOLVE-BLOCK-START\ndef value():\n    return 0.1\n# EVOLVE-BLOCK-END\n"
GOOD = """
import runpy

def evaluate(program_path):
    return {"combined_score": float(runpy.run_path(program_path)["value"]())}
"""
BROKEN = "def evaluate(program_path):\n    raise RuntimeError('a library is missing')\n"
CONFIG = """
max_iterations: {iterations}
checkpoint_interval: 5
diff_based_evolution: false
llm:
  api_base: "{url}"
  api_key: "none"
  models: [{{name: "stand-in", weight: 1.0}}]
prompt:
  system_message: "Make value() large."
evaluator:
  parallel_evaluations: {parallel}
  cascade_evaluation: false
"""


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


@dataclass(frozen=True)
class Limits:
    """What a run may do: its iterations, its dollars, and its calls in flight."""

    iterations: int = ITERATIONS
    budget: float = 1.0
    parallel: int = 1


@dataclass(frozen=True)
class Tool:
    """How a tool is begun on a problem folder, and how it goes on after a kill."""

    begin: Callable[[Path], list[str]]
    go_on: Callable[[Path], list[str]]


def costada(url: str, limits: Limits) -> Tool:
    """How CostAda is run."""
    program = str(Path(sys.executable).with_name("costada"))
    given = ["--budget", str(limits.budget), "--max-iterations", str(limits.iterations)]
    given += ["--parallel", str(limits.parallel)]
    prices = ["--price", f"{PRICE_IN},{PRICE_OUT}"]
    model = ["--model", "openai:stand-in", "--base-url", url]

    def begin(folder: Path) -> list[str]:
        return [program, "run", str(folder), *given, *prices, *model, "--out", str(folder / "out")]

    return Tool(begin, lambda folder: [program, "resume", str(folder / "out")])


def openevolve(program: str, limits: Limits) -> Tool:
    """How OpenEvolve is run; its calls in flight and its URL are in the problem folder."""

    def begin(folder: Path) -> list[str]:
        files = [str(folder / name) for name in ("initial_program.py", "evaluator.py")]
        out = ["--config", str(folder / "config.yaml"), "--output", str(folder / "out")]
        return [program, *files, *out, "--iterations", str(limits.iterations)]

    def go_on(folder: Path) -> list[str]:
        saved = sorted(folder.glob("out/checkpoints/checkpoint_*"), key=lambda path: path.name)
        return [*begin(folder), *(["--checkpoint", str(saved[-1])] if saved else [])]

    return Tool(begin, go_on)


GEPA = """
import json, sys
from importlib.util import module_from_spec, spec_from_file_location
import litellm
from gepa.lm import LM
from gepa.optimize_anything import EngineConfig, GEPAConfig, ReflectionConfig, optimize_anything
from gepa.strategies.proposal_sampling import IndependentSampling

folder, url, price_in, price_out, iterations, budget, parallel = json.loads(sys.argv[1])
prices = {"input_cost_per_token": price_in / 1e6, "output_cost_per_token": price_out / 1e6}
litellm.register_model({"stand-in": {**prices, "litellm_provider": "openai", "mode": "chat"}})
spec = spec_from_file_location("evaluator", f"{folder}/evaluator.py")
evaluator = module_from_spec(spec)
spec.loader.exec_module(evaluator)

def evaluate(candidate):
    from tempfile import NamedTemporaryFile
    with NamedTemporaryFile("w", suffix=".py") as file:
        file.write(candidate)
        file.flush()
        try:
            return evaluator.evaluate(file.name)["combined_score"]
        except Exception:  # whatever a candidate raises, it scores nothing
            return 0.0

optimize_anything(
    seed_candidate=open(f"{folder}/initial_program.py").read(),
    evaluator=evaluate,
    objective="Make value() large.",
    config=GEPAConfig(
        engine=EngineConfig(
            max_candidate_proposals=iterations // parallel,
            max_reflection_cost=budget,
            sampling_strategy=IndependentSampling(parallel) if parallel > 1 else None,
            run_dir=f"{folder}/out",
        ),
        reflection=ReflectionConfig(reflection_lm=LM("openai/stand-in", api_base=url)),
    ),
)
"""
"""GEPA proposes K candidates in each iteration, whose calls go out together."""


def gepa(python: str, url: str, limits: Limits) -> Tool:
    """How GEPA is run by an interpreter that has it."""

    def begin(folder: Path) -> list[str]:
        given = [str(folder), url, PRICE_IN, PRICE_OUT]
        given += [limits.iterations, limits.budget, limits.parallel]
        return [python, "-c", GEPA, json.dumps(given)]

    return Tool(begin, begin)


@dataclass(frozen=True)
class Peers:
    """The programs of the other tools, where they are installed."""

    openevolve: str | None
    gepa: str | None

    def tools(self, url: str, limits: Limits) -> dict[str, Tool]:
        """How each tool is run."""
        tools = {"CostAda": costada(url, limits)}
        if self.openevolve:
            tools["OpenEvolve"] = openevolve(self.openevolve, limits)
        if self.gepa:
            tools["GEPA"] = gepa(self.gepa, url, limits)
        return tools


def write_problem(folder: Path, url: str, evaluator: str, limits: Limits) -> None:
    """Write a problem folder that all tools read."""
    folder.mkdir()
    (folder / "initial_program.py").write_text(PROGRAM)
    (folder / "evaluator.py").write_text(evaluator)
    (folder / "config.yaml").write_text(
        CONFIG.format(url=url, iterations=limits.iterations, parallel=limits.parallel)
    )


def run(command: list[str]) -> int:
    """The exit code of a command that is silent and has a key that opens nothing."""
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, timeout=600).returncode


def programs(rng: random.Random) -> str:
    """A program that returns a number, with notes of some length."""
    notes = "".join(f"# note {rng.randrange(10**9)}\n" for _ in range(rng.randrange(10, 60)))
    return f"```python\n{PROGRAM.replace('0.1', f'{rng.random():.9f}')}{notes}```"


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
    """Print the three tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--openevolve", help="its program", metavar="PATH")
    parser.add_argument("--gepa", help="an interpreter that has it", metavar="PYTHON")
    parser.add_argument("--iterations", type=int, default=96, help="of the first table")
    parser.add_argument("--parallel", type=int, default=8, metavar="K")
    parser.add_argument("--quick", action="store_true", help="32 iterations, 3 runs to the budget")
    given = parser.parse_args()
    peers = Peers(given.openevolve, given.gepa)
    runs = 3 if given.quick else 10
    costs = print_speed(peers, 32 if given.quick else given.iterations, given.parallel)
    print_overshoot(peers, costs, runs, given.parallel)
    print_mishaps(given.openevolve)


if __name__ == "__main__":
    main()
