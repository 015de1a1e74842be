"""Programs and prompts for the tests of the offline model."""

from dataclasses import replace
from random import Random
from typing import Any

from langchain_core.messages import BaseMessage

from costada.evaluators.registry import problem
from costada.nodes.calls.paid_calls import Conversation
from costada.plugins.offline.edits import EditContext
from costada.plugins.offline.searches import METHODS, complete, search_with
from costada.prompts.render import Prompt, generation_prompt, guide_prompt
from costada.prompts.requests import GenerationRequest, GuideRequest, ProgramView
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
  return points

def ratio(points):
  n = len(points)
  low = np.inf
  high = 0.0
  for i in range(n):
    for j in range(i + 1, n):
      gap = np.linalg.norm(points[i] - points[j])
      low = min(low, gap)
      high = max(high, gap)
  return float(low / high)
# EVOLVE-BLOCK-END
def run():
  points = points_in_space()
  return points, ratio(points)
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


def searching(text: str, method: str = "row_search") -> str:
    """The program with a search in it."""
    edit = search_with(METHODS[method], edit_context(text), Random(0))
    assert edit is not None
    return complete(edit.code)


def edit_context(text: str, *others: str) -> EditContext:
    return EditContext(text, others)


def value(text: str) -> Any:
    """The number that the entry point of a program reports."""
    return float(result(text)[-1])


def result(text: str) -> Any:
    names: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(text, "candidate", "exec"), names)
    return names.get("run_packing", names.get("run"))()


def shown(code: str, seconds: float = 0.1) -> ProgramView:
    return ProgramView(code=code, score=0.4, metrics={"eval_time": seconds}, artifacts={})


def generation(code: str = PACKING, **changes: Any) -> Prompt:
    entry_point = "run_packing" if code == PACKING else "run"
    request = GenerationRequest("Raise it.", shown(code), "balanced", (), 360.0, entry_point)
    return generation_prompt(replace(request, **changes))


def guide(
    code: str = PACKING, mode: str = "breakthrough", tried: tuple[TriedTactic, ...] = ()
) -> Prompt:
    source = "def evaluate(code): ..."
    return guide_prompt(GuideRequest("Raise it.", source, shown(code), mode, tried, 360.0, 3))


def messages(prompt: Prompt) -> list[BaseMessage]:
    return Conversation(prompt).messages


SEARCHED = [searching(each) for each in (PACKING, AREA, SPREAD)]
