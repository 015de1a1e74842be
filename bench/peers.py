"""What mishaps cost with CostAda and with OpenEvolve: requests that a provider gets, and the end.

Both work on the same problem folder against the same loopback provider, for ten iterations, with
their own defaults otherwise; the provider counts requests.

    python bench/peers.py --openevolve PATH/TO/openevolve-run
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from billing_server import Answer, BillingServer, Body, Refusal, Reply

ITERATIONS = 10
LATENCY = 0.3
"""Seconds that the provider takes to answer."""

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
  parallel_evaluations: 1
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
class Tool:
    """How a tool is begun on a problem folder, and how it goes on after a kill."""

    begin: Callable[[Path], list[str]]
    go_on: Callable[[Path], list[str]]


def costada(url: str) -> Tool:
    """How CostAda is run."""
    program = str(Path(sys.executable).with_name("costada"))
    limits = ["--budget", "1", "--max-iterations", str(ITERATIONS)]
    prices = ["--price-in", "0.6", "--price-out", "1.92"]
    model = ["--model", "openai:stand-in", "--base-url", url]

    def begin(folder: Path) -> list[str]:
        return [program, "run", str(folder), *limits, *prices, *model, "--out", str(folder / "out")]

    return Tool(begin, lambda folder: [program, "resume", str(folder / "out")])


def openevolve(program: str) -> Tool:
    """How OpenEvolve is run."""

    def begin(folder: Path) -> list[str]:
        files = [str(folder / name) for name in ("initial_program.py", "evaluator.py")]
        out = ["--config", str(folder / "config.yaml"), "--output", str(folder / "out")]
        return [program, *files, *out, "--iterations", str(ITERATIONS)]

    def go_on(folder: Path) -> list[str]:
        saved = sorted(folder.glob("out/checkpoints/checkpoint_*"), key=lambda path: path.name)
        return [*begin(folder), *(["--checkpoint", str(saved[-1])] if saved else [])]

    return Tool(begin, go_on)


def write_problem(folder: Path, url: str, evaluator: str) -> None:
    """Write a problem folder that both tools read."""
    folder.mkdir()
    (folder / "initial_program.py").write_text(PROGRAM)
    (folder / "evaluator.py").write_text(evaluator)
    (folder / "config.yaml").write_text(CONFIG.format(url=url, iterations=ITERATIONS))


def run(command: list[str]) -> int:
    """The exit code of a command that is silent and has a key that opens nothing."""
    environment = os.environ | {"OPENAI_API_KEY": "none"}
    ended = subprocess.run(command, env=environment, capture_output=True, timeout=600)
    return ended.returncode


def killed_once(tool: Tool, folder: Path, provider: Provider) -> int:
    """Kill a run in the middle, let it go on, and return the exit code of that."""
    environment = os.environ | {"OPENAI_API_KEY": "none"}
    process = subprocess.Popen(
        tool.begin(folder),
        env=environment,
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
        write_problem(folder, server.url, evaluator)
        tool = openevolve(program) if program else costada(server.url)
        began = time.monotonic()
        is_killed = mishap.startswith("kill")
        code = killed_once(tool, folder, provider) if is_killed else run(tool.begin(folder))
        seconds = time.monotonic() - began
    return Outcome(provider.requests, code, seconds)


def main() -> None:
    """Print a line for each mishap and tool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--openevolve", help="its program", metavar="PATH")
    given = parser.parse_args()
    tools = {"CostAda": None} | ({"OpenEvolve": given.openevolve} if given.openevolve else {})
    print(f"{'mishap':20}{'tool':12}{'requests':>9}{'exit code':>10}{'seconds':>9}")
    for mishap in MISHAPS:
        for name, program in tools.items():
            found = outcome(mishap, program)
            counts = f"{found.requests:9}{found.exit_code:10}"
            print(f"{mishap:20}{name:12}{counts}{found.seconds:9.1f}", flush=True)


if __name__ == "__main__":
    main()
