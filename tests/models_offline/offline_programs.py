"""Programs and prompts for the tests of the offline model."""

from typing import Any

from langchain_core.messages import BaseMessage

from costada.evaluators.problem import Problem
from costada.evaluators.registry import problem
from costada.models.offline.program import Program, Scene, read_program
from costada.nodes.calls.asking import Conversation
from costada.prompts.render import Prompt, generation_prompt, guide_prompt
from costada.prompts.requests import GenerationRequest, GuideRequest, ShownProgram
from costada.prompts.tactics import TriedTactic

PACKING = problem("circle_packing").initial_program

AREA = '''import numpy as np


def place_points():
    """Return eight points in the unit square."""
    rng = np.random.default_rng(3)
    points = rng.random((8, 2))
    points = np.clip(points, 0.02, 0.98)
    return points


def smallest_area(points):
    """Return the smallest area of a triangle of three of the points."""
    smallest = np.inf
    for i in range(len(points)):
        for j in range(i + 1, len(points)):
            for k in range(j + 1, len(points)):
                (a, b), (c, d), (e, f) = points[i], points[j], points[k]
                area = 0.5 * abs((c - a) * (f - b) - (e - a) * (d - b))
                smallest = min(smallest, area)
    return smallest


def run():
    points = place_points()
    return points, smallest_area(points)
'''

SPREAD = """import numpy as np
# EVOLVE-BLOCK-START
def points_in_space():
  n, d = 14, 3
  points = np.random.default_rng(42).standard_normal((n, d))
  low = np.inf
  high = 0.0
  for i in range(n):
    for j in range(i + 1, n):
      gap = np.linalg.norm(points[i] - points[j])
      low = min(low, gap)
      high = max(high, gap)
  ratio = float(low / high)
  return points, ratio
# EVOLVE-BLOCK-END
def run():
  points, ratio = points_in_space()
  return points, ratio
"""

SCALAR = """def step_size(turn):
    base = 0.1
    for k in range(3):
        base = base * 0.9 + 0.01 * k
    return base / (1 + turn)


def run():
    return None, sum(step_size(turn) for turn in range(10))
"""

PROGRAMS = {"packing": PACKING, "area": AREA, "spread": SPREAD, "scalar": SCALAR}

ENTRY_POINTS = {"packing": "run_packing"}


def parsed(text: str) -> Program:
    program = read_program(text)
    assert program is not None
    return program


def scene(text: str, *others: str) -> Scene:
    return Scene(parsed(text), tuple(parsed(each) for each in others))


def result(text: str) -> Any:
    """Return what the entry point of a program returns."""
    names: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(text, "candidate", "exec"), names)
    return names.get("run_packing", names.get("run"))()


def value(text: str) -> float:
    """Return the number a program reports."""
    return float(result(text)[-1])


def shown(code: str, seconds: float = 0.1) -> ShownProgram:
    return ShownProgram(code=code, score=0.4, metrics={"eval_time": seconds}, artifacts={})


def generation(code: str = PACKING, **changes: Any) -> Prompt:
    values: dict[str, Any] = {
        "task": "Raise the number.",
        "current": shown(code),
        "action": "balanced",
        "others": (),
        "timeout": 360.0,
        "entry_point": "run_packing" if code == PACKING else "run",
    }
    return generation_prompt(GenerationRequest(**{**values, **changes}))


def guide(
    code: str = PACKING, mode: str = "breakthrough", tried: tuple[TriedTactic, ...] = ()
) -> Prompt:
    return guide_prompt(
        GuideRequest(
            task="Raise the number.",
            evaluator_source="def evaluate(code): ...",
            best=shown(code),
            mode=mode,
            tried=tried,
            timeout=360.0,
            count=3,
        )
    )


def messages(prompt: Prompt) -> list[BaseMessage]:
    return Conversation(prompt).messages


def in_process_problem(text: str, evaluate: Any) -> Problem:
    return Problem(
        name="toy",
        task="Raise the number.",
        initial_program=text,
        evaluate=evaluate,
        entry_point="run",
        evaluator_source="the number the program reports",
    )
