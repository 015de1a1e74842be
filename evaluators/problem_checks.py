"""Whether the fields of a problem are what they should be."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib.util import find_spec
from keyword import iskeyword
from math import isfinite
from reprlib import repr as shortened

from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.wire import encode
from costada.values.evaluation import is_storable

PLAIN = "a number, text, array, list or dict"


def check_text(name: str, value: object, *, may_be_empty: bool = False) -> None:
    """Refuse what is no text, says nothing, or cannot be stored and sent to a model."""
    if not isinstance(value, str) or not (value.strip() or may_be_empty):
        kind = "a text" if may_be_empty else "a non-empty text"
        raise ValueError(f"{name} is {value!r}; expected {kind}")
    if not is_storable(value):
        raise ValueError(f"{name} is {shortened(value)}; expected no half of a surrogate pair")


def check_name(name: str, value: object, kind: str) -> None:
    """Refuse what cannot be a name in Python; `kind` says what it should name."""
    if not isinstance(value, str) or not value.isidentifier() or iskeyword(value):
        raise ValueError(f"{name} is {value!r}; expected {kind}")


def check_choice(name: str, value: object, choices: type[StrEnum]) -> None:
    """Refuse what is none of the choices."""
    if value not in list(choices):
        known = ", ".join(repr(choice.value) for choice in choices)
        raise ValueError(f"{name} is {value!r}; expected one of {known}")


def check_number(name: str, value: float | None, *, must_be_positive: bool) -> None:
    """Refuse what is no finite number; None passes."""
    if value is None:
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isfinite(value) or (must_be_positive and value <= 0):
        kind = "a positive" if must_be_positive else "a finite"
        raise ValueError(f"{name} is {value!r}; expected {kind} number")


def check_preload(preload: object, layer: Layer) -> None:
    """Refuse what are no names of modules that can be imported here."""
    if isinstance(preload, str) or not isinstance(preload, Sequence):
        raise ValueError(f"preload is {preload!r}; expected a list of module names")
    for module in preload:
        parts = module.split(".") if isinstance(module, str) else [module]
        for part in parts:
            check_name("preload", part, "names of modules, such as 'numpy'")
        if layer is not Layer.CONTAINER and find_spec(parts[0]) is None:
            raise ValueError(f"preload is {list(preload)!r}; expected modules, found no {parts[0]}")


def check_timings(timing_metrics: object) -> None:
    """Refuse what are no names of metrics."""
    if (
        isinstance(timing_metrics, str)
        or not isinstance(timing_metrics, Sequence)
        or not all(isinstance(name, str) for name in timing_metrics)
    ):
        raise ValueError(f"timing_metrics is {timing_metrics!r}; expected a list of metric names")


def check_calls(arguments: object, calls: object) -> None:
    """Refuse arguments that cannot be sent to a candidate, and arguments beside calls.

    Raises:
        ValueError: Naming the field, the argument, its value and what was expected.
    """
    if calls is None:
        _check_arguments("arguments", arguments)
        return
    if arguments != {}:
        raise ValueError(
            f"arguments is {shortened(arguments)} and calls is {shortened(calls)}; "
            "expected one of them"
        )
    if not isinstance(calls, Sequence) or isinstance(calls, str) or not calls:
        raise ValueError(f"calls is {shortened(calls)}; expected a list of at least one dict")
    for index, call in enumerate(calls):
        _check_arguments(f"calls[{index}]", call)


def _check_arguments(label: str, arguments: object) -> None:
    if not isinstance(arguments, Mapping):
        raise ValueError(f"{label} is {shortened(arguments)}; expected a dict of keyword arguments")
    for name, value in arguments.items():
        check_name(f"an argument in {label}", name, "the name of a keyword argument")
        _check_plain(f"{label}[{name!r}]", value)
    _check_plain(label, dict(arguments))


def _check_plain(label: str, value: object) -> None:
    try:
        encode(value)
    except ValueError as error:
        raise ValueError(f"{label} is {shortened(value)}; expected {PLAIN} ({error})") from None
