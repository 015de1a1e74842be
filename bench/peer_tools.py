"""How CostAda, OpenEvolve and GEPA are run on the same problem folder, for `bench/peers.py`."""

import json
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ITERATIONS = 10
PRICE_IN, PRICE_OUT = 0.6, 1.92
"""Dollars per million tokens."""

ENVIRONMENT = os.environ | {"OPENAI_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
PROGRAM = "# EVOLVE-BLOCK-START\ndef value():\n    return 0.1\n# EVOLVE-BLOCK-END\n"
GOOD = """
import runpy

def evaluate(program_path):
    return {"combined_score": float(runpy.run_path(program_path)["value"]())}
"""
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


def programs(rng: random.Random) -> str:
    """A program that returns a number, with notes of some length."""
    notes = "".join(f"# note {rng.randrange(10**9)}\n" for _ in range(rng.randrange(10, 60)))
    return f"```python\n{PROGRAM.replace('0.1', f'{rng.random():.9f}')}{notes}```"
