"""The texts of the built-in problems: what model and guide read about them."""

from collections.abc import Callable, Mapping
from importlib.resources import files
from inspect import getsource

_PACKAGE = "costada.evaluators.benchmarks"
_FAILED = "# A check that fails raises; the score is then 0."
_NORMALIZED = (
    "# normalize(objective, REFERENCE, direction) is objective / REFERENCE where the objective is\n"
    "# maximized, REFERENCE / objective where it is minimized."
)


def read_text(name: str) -> str:
    """Return a file of the folder `programs`, such as "circle_packing_task.txt"."""
    return (files(_PACKAGE) / "programs" / name).read_text(encoding="utf-8")


def scoring_source(constants: Mapping[str, object], *rules: Callable[..., object]) -> str:
    """Return the rules of a benchmark as Python text, for the guide to read.

    Args:
        constants: What the rules refer to by name; one assignment each.
        rules: Functions whose source is shown, in this order.
    """
    comments = [_FAILED, _NORMALIZED] if "REFERENCE" in constants else [_FAILED]
    assignments = [f"{name} = {value!r}" for name, value in constants.items()]
    head = "\n".join([*comments, "", *assignments])
    return "\n\n".join([head, *(getsource(rule) for rule in rules)])
