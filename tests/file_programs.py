"""A toy problem of several files, and replies that change, add and delete some of them."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from fakes import IDEAS, is_guide_prompt, toy_problem

from costada.evaluators.problem import Problem
from costada.values.evaluation import Evaluation, failed

START = {
    "pkg/__init__.py": "",
    "pkg/part.py": "# EVOLVE-BLOCK-START\nPART = 0.05\n# EVOLVE-BLOCK-END\n",
    "pkg/value.py": "from pkg.part import PART\n\n\ndef value():\n    return PART + 0.05\n",
    "words/task.md": "Add up parts.",
}
VALUE = re.compile(r"(?:PART = |\+ |EXTRA = )([\d.]+)")


def evaluate_files(files: Mapping[str, str]) -> Evaluation:
    """Score the sum of the numbers in all files; above 1 is invalid."""
    value = sum(float(number) for text in files.values() for number in VALUE.findall(text))
    if value > 1:
        return failed(f"the parts come to {value}; expected at most 1")
    return Evaluation(score=value, objective=10 * value, is_valid=True, metrics={"value": value})


def files_problem(**changes: Any) -> Problem:
    fields: dict[str, Any] = {
        "name": "files",
        "initial_program": START,
        "editable": ["pkg/*.py", "words/*.md"],
        "entry_point": "pkg.value:value",
        "evaluate": evaluate_files,
    }
    return toy_problem(**{**fields, **changes})


def changed_part(value: float) -> str:
    text = START["pkg/part.py"].replace("0.05", f"{value:.4f}")
    return f"### pkg/part.py\n```python\n{text}```\n"


def hashed_files(prompt: str) -> str:
    """Answer as a function of the prompt alone: another part, a further file, or one less."""
    if is_guide_prompt(prompt):
        return IDEAS
    draw = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:4], "big") / 2**32
    if draw < 0.1:
        return "I would rather not."
    if draw < 0.3:
        return f"### pkg/more.py\n```python\nEXTRA = {draw / 2:.4f}\n```\n"
    if draw < 0.4 and "words/task.md" in prompt:
        return f"DELETE words/task.md\n\n{changed_part(draw)}"
    if draw < 0.5:
        return f"### ../outside.py\n```python\nEXTRA = {draw}\n```\n"
    return changed_part(draw if draw > 0.9 else draw / 2)
