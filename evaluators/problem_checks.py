"""What the fields of a problem must be; every fault names field, value and expectation."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from inspect import iscoroutinefunction
from keyword import iskeyword
from reprlib import repr as shortened
from typing import Any, cast, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from costada.evaluators.data_set import INPUTS
from costada.evaluators.problem_fields import SURROGATE, Expected, ProblemFields
from costada.evaluators.sandbox.codec import encode
from costada.evaluators.sandbox.interpreter import interpreter_at, own_interpreter
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot_kind import readable_paths
from costada.values.evaluation import Direction, Objective, is_storable
from costada.values.program_form import (
    LANGUAGES,
    PYTHON,
    find_language,
    invalid_files_reason,
    invalid_path_reason,
    invalid_pattern_reason,
)

STRICT = ConfigDict(strict=True, allow_inf_nan=False)
"""As `problem.toml` is read."""


def check_fields(problem: ProblemFields) -> None:
    """Refuse fields of the wrong type or value, one by one."""
    for name, adapter in _adapters().items():
        value = getattr(problem, name)
        # pydantic's strict mode takes a Sequence for a list or a tuple only.
        if isinstance(value, Sequence) and not isinstance(value, str | bytes | tuple):
            value = list(value)
        try:
            adapter.validate_python(value)
        except ValidationError as error:
            raise ValueError(_refusal(name, value, error.errors()[0])) from None
    if not isinstance(problem.limits, Limits):
        raise ValueError(f"limits is {problem.limits!r}; expected Limits(...)")
    _check_program(problem)
    _check_entry_point(problem.entry_point, problem.initial_program)
    if problem.focus and not isinstance(problem.initial_program, Mapping):
        raise ValueError(
            f"focus is {problem.focus!r}, but initial_program is one text; expected none"
        )
    if problem.holdout is not None and (problem.score is None or problem.calls is None):
        raise ValueError("holdout is given without score and calls; expected it with both")


@cache
def _adapters() -> dict[str, TypeAdapter[Any]]:
    """What validates each field whose declaration says what is expected."""
    return {
        name: TypeAdapter(hint, config=STRICT) for name, hint in _hints().items() if _words(hint)
    }


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(ProblemFields, include_extras=True)


def _words(hint: Any) -> str:
    found = (each.words for each in getattr(hint, "__metadata__", ()) if isinstance(each, Expected))
    return next(found, "")


def _refusal(name: str, value: object, details: ErrorDetails) -> str:
    """The message about a field, or about one value of a mapping."""
    hint, place = _hints()[name], details["loc"]
    if isinstance(value, Mapping) and len(place) == 1:
        name, value, hint = f"{name}[{place[0]!r}]", details["input"], get_args(hint.__origin__)[1]
    if details["type"] == SURROGATE:
        return f"{name} is {shortened(value)}; {details['msg']}"
    return f"{name} is {value!r}; expected {_words(hint)}"


def _check_program(problem: ProblemFields) -> None:
    given = problem.initial_program
    if find_language(problem.language) is None:
        known = ", ".join(repr(each.name) for each in LANGUAGES)
        raise ValueError(f"language is {problem.language!r}; expected one of {known}")
    if not isinstance(given, Mapping):
        if given is not None and (not isinstance(given, str) or not given.strip()):
            raise ValueError(f"initial_program is {given!r}; expected a non-empty string, or None")
        if given is not None and not is_storable(given):
            raise ValueError(
                f"initial_program is {shortened(given)}; expected no half of a surrogate pair"
            )
        if problem.editable:
            raise ValueError(
                f"editable is {problem.editable!r}, but initial_program is one text; expected none"
            )
        return
    if fault := invalid_files_reason(given):
        raise ValueError(f"initial_program has {fault}")
    _check_patterns("editable", problem.editable)
    _check_patterns("reserved", problem.reserved)
    for path, text in given.items():
        if not isinstance(text, str) or not is_storable(text):
            raise ValueError(f"initial_program[{path!r}] is {shortened(text)}; expected a string")
    for path in given:
        if problem.editable and not problem.form.allows(path):
            raise ValueError(
                f"editable is {list(problem.editable)!r}; expected patterns that match {path!r},"
                " a file of the initial program, too"
            )


def _check_patterns(name: str, patterns: object) -> None:
    if isinstance(patterns, str) or not isinstance(patterns, Sequence):
        raise ValueError(f"{name} is {patterns!r}; expected a list of patterns")
    for pattern in patterns:
        if fault := invalid_pattern_reason(pattern):
            raise ValueError(f"{name} is {list(patterns)!r}; expected {fault}")


def _check_entry_point(given: object, program: str | Mapping[str, str] | None) -> None:
    """Refuse what names no function, or names it in a module that the initial program lacks."""
    if given is None:
        return
    if not isinstance(program, Mapping):
        _check_name("entry_point", given, "a function name")
        return
    module, _, function = given.partition(":") if isinstance(given, str) else ("", "", "")
    parts = module.split(".")
    if not all(map(str.isidentifier, (*parts, function))):
        raise ValueError(
            f"entry_point is {given!r}; expected a module and a function of it, such as"
            " 'package.module:function', as initial_program has several files"
        )
    path = "/".join(parts)
    if not {f"{path}.py", f"{path}/__init__.py"} & program.keys():
        raise ValueError(f"entry_point is {given!r}; expected {path}.py among the initial program")


def check_measuring(problem: ProblemFields) -> None:
    """Refuse fields about measurements and objectives that cannot work.

    Raises:
        ValueError: Naming the field, its value and what was expected.
    """
    weights = problem.weights
    metrics = _checked_metrics(problem.objectives)
    for name in weights:
        if name not in metrics:
            known = ", ".join(metrics) or "none, as objectives is empty"
            raise ValueError(f"weights has {name!r}; expected metrics of the objectives ({known})")
    if weights and problem.direction != Direction.MAXIMIZE:
        raise ValueError(
            f"direction is {str(problem.direction)!r}, but weights is given; expected 'maximize':"
            " the weighted sum is better if it is higher"
        )


def _checked_metrics(objectives: Sequence[str]) -> list[str]:
    """The metrics of the objectives."""
    metrics = []
    for place, text in enumerate(objectives):
        try:
            metrics.append(Objective.read(text).metric)
        except ValueError as error:
            raise ValueError(f"objectives[{place}] is {error}") from None
    if len(metrics) == 1 or len({*metrics}) < len(metrics):
        raise ValueError(
            f"objectives is {list(objectives)!r}; expected none, or at least two different metrics"
        )
    return metrics


def check_preload(preload: Sequence[str], layer: Layer, interpreter: str | None) -> None:
    """Refuse names of modules that are not installed, and what is not a Python interpreter."""
    python = interpreter_at(interpreter) if interpreter is not None else own_interpreter()
    for module in preload:
        parts = module.split(".")
        for part in parts:
            _check_name("preload", part, "names of modules, such as 'numpy'")
        is_here = layer is Layer.AUTO or layer.implementation.is_this_system
        if is_here and not python.has_module(parts[0]):
            raise ValueError(f"preload is {list(preload)!r}; expected modules, found no {parts[0]}")


def check_running(problem: ProblemFields) -> None:
    """Refuse settings of how candidates are built, run or called that contradict each other."""
    _check_commands(problem)
    _check_visible(problem)
    if problem.commands is not None or problem.scorer is None or problem.entry_point is not None:
        return
    if problem.form.is_one_text and find_language(problem.language) is PYTHON:
        raise ValueError(
            "entry_point is None; expected the function whose result score evaluates, or run,"
            " the command that runs a candidate"
        )
    if problem.arguments or problem.calls is not None:
        raise ValueError(
            "arguments or calls are given without entry_point and run; expected one of these,"
            " as nothing is called where score evaluates the text itself"
        )


def _check_commands(problem: ProblemFields) -> None:
    for name in ("build", "run"):
        command = getattr(problem, name)
        if command is not None and problem.scorer is None:
            raise ValueError(f"{name} is {command!r}; expected none beside evaluate")
        if command is not None and problem.entry_point is not None:
            raise ValueError(
                f"{name} is {command!r} and entry_point is {problem.entry_point!r}; expected one:"
                " a command runs programs, an entry point is called in Python"
            )
    if problem.build is not None and problem.run is None:
        raise ValueError(f"build is {problem.build!r} and run is None; expected both, or run alone")
    if problem.commands is not None:
        for name in ("build", "run") if problem.build else ("run",):
            problem.commands.words(name, has_one_file=problem.form.is_one_text)


def _check_visible(problem: ProblemFields) -> None:
    name = problem.file_name
    if not isinstance(name, str) or (name and ("/" in name or invalid_path_reason(name))):
        raise ValueError(f"file_name is {name!r}; expected the name of a file")
    readable_paths(problem.readable)


def check_calls(problem: ProblemFields) -> None:
    """Refuse arguments that cannot be sent to a candidate, and arguments beside calls."""
    arguments, calls = problem.arguments, problem.calls
    labelled = {"arguments": arguments}
    if calls is not None:
        if arguments != {}:
            both = f"arguments is {shortened(arguments)} and calls is {shortened(calls)}"
            raise ValueError(f"{both}; expected one of them")
        if not isinstance(calls, Sequence) or isinstance(calls, str) or not calls:
            raise ValueError(f"calls is {shortened(calls)}; expected a list of at least one dict")
        labelled = {f"calls[{index}]": call for index, call in enumerate(calls)}
    for label, call in labelled.items():
        if not isinstance(call, Mapping):
            given = shortened(call)
            raise ValueError(f"{label} is {given}; expected a dict of keyword arguments")
        _check_call(label, call, problem)


def _check_call(label: str, call: Mapping[str, object], problem: ProblemFields) -> None:
    """Refuse the arguments of a call that cannot be sent to a candidate."""
    if problem.run is not None:
        _check_call_of_command(label, call)
    for name, value in call.items():
        _check_name(f"an argument in {label}", name, "the name of a keyword argument")
        _check_plain(f"{label}[{name!r}]", value)
    _check_plain(label, dict(call))


def check_data_set(problem: ProblemFields) -> None:
    """Refuse examples without what judges them, and settings that hold for whole programs only.

    Raises:
        ValueError: Naming the field, its value and what was expected.
    """
    if not problem.examples:
        for name in ("validation", "score_example"):
            if value := getattr(problem, name):
                raise ValueError(f"{name} is {value!r}, but examples is empty; expected examples")
        return
    if problem.score_example is None:
        raise ValueError(
            f"examples is {problem.examples!r}, but score_example is None; expected the function"
            " that judges one of them"
        )
    # A score is a mean over examples, so what is said of one score for a whole program has no
    # meaning, and objectives measured on other examples cannot be compared.
    for each in fields(problem):
        made = each.default if each.default_factory is MISSING else each.default_factory()
        if each.name in NOT_FOR_EXAMPLES and (value := getattr(problem, each.name)) != made:
            raise ValueError(
                f"{each.name} is {shortened(value)}, but there are examples; expected none"
            )
    is_called = problem.entry_point is not None or problem.run is not None
    for name in ("examples", "validation") if is_called else ():
        for place, example in enumerate(getattr(problem, name)):
            label = f"{name}[{place}][{INPUTS!r}]"
            if not isinstance(example.get(INPUTS), Mapping):
                raise ValueError(
                    f"{label} is {shortened(example.get(INPUTS))}; expected a dict of keyword"
                    " arguments, as candidates are called"
                )
            _check_call(label, cast(Mapping[str, object], example[INPUTS]), problem)


NOT_FOR_EXAMPLES = (
    *("direction", "reference", "repeats", "objectives", "weights"),
    *("arguments", "calls", "holdout"),
)
"""Fields about the one score of a program."""


def check_called_function(name: str, function: object) -> None:
    """Refuse a coroutine function, as nothing awaits what it returns."""
    if iscoroutinefunction(function):
        raise ValueError(f"{name} is an async function; expected one that is called without await")


def _check_call_of_command(label: str, call: Mapping[str, object]) -> None:
    """Refuse what a program cannot be given."""
    for name, value in call.items():
        if name == "stdin" and isinstance(value, str):
            continue
        is_list = isinstance(value, Sequence) and not isinstance(value, str)
        words = cast(Sequence[object], value) if name == "arguments" and is_list else [None]
        if all(isinstance(each, str) for each in words):
            continue
        raise ValueError(
            f"{label}[{name!r}] is {shortened(value)}; expected a string as 'stdin' or a list of"
            " texts as 'arguments', for a program that a command runs"
        )


def _check_name(name: str, value: object, kind: str) -> None:
    if not isinstance(value, str) or not value.isidentifier() or iskeyword(value):
        raise ValueError(f"{name} is {value!r}; expected {kind}")


def _check_plain(label: str, value: object) -> None:
    try:
        encode(value)
    except ValueError as error:
        plain = "a number, text, array, list or dict"
        raise ValueError(f"{label} is {shortened(value)}; expected {plain} ({error})") from None
