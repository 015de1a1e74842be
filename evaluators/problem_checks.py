"""What the fields of a problem must be; every fault names field, value and expectation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from keyword import iskeyword
from math import inf, isfinite
from reprlib import repr as shortened
from typing import TYPE_CHECKING, cast

from costada.evaluators.measuring import check_measuring
from costada.evaluators.sandbox.codec import encode
from costada.evaluators.sandbox.interpreter import interpreter_at, own_interpreter
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot_kind import readable_paths
from costada.values.evaluation import Direction, is_storable
from costada.values.program_form import (
    LANGUAGES,
    PYTHON,
    find_language,
    invalid_files_reason,
    invalid_path_reason,
    invalid_pattern_reason,
)

if TYPE_CHECKING:
    from costada.evaluators.problem import Problem


def check_fields(problem: Problem) -> None:
    """Refuse fields of the wrong type or value, one by one."""
    for name in ("name", "task", "evaluator_source", "source"):
        _check_text(name, getattr(problem, name))
    _check_program(problem)
    _check_entry_point(problem.entry_point, problem.initial_program)
    choices: dict[str, type[StrEnum]] = {"direction": Direction, "sandbox": Layer}
    for name, kinds in choices.items():
        if getattr(problem, name) not in list(kinds):
            known = ", ".join(repr(kind.value) for kind in kinds)
            raise ValueError(f"{name} is {getattr(problem, name)!r}; expected one of {known}")
    if problem.holdout is not None and (problem.score is None or problem.calls is None):
        raise ValueError("holdout is given without score and calls; expected it with both")
    if not isinstance(problem.allow_invalid_start, bool):
        given = problem.allow_invalid_start
        raise ValueError(f"allow_invalid_start is {given!r}; expected True or False")
    if not isinstance(problem.limits, Limits):
        raise ValueError(f"limits is {problem.limits!r}; expected Limits(...)")
    _check_evaluators(problem.evaluators)
    _check_resources(problem.cpus, problem.gpus)
    check_measuring(problem)
    _check_number("reference", problem.reference, "positive")
    _check_number("human", problem.human, "finite")
    _check_number("seed_objective", problem.seed_objective, "finite")
    timings = problem.timing_metrics
    is_list = isinstance(timings, Sequence) and not isinstance(timings, str)
    if not is_list or not all(isinstance(name, str) for name in timings):
        raise ValueError(f"timing_metrics is {timings!r}; expected a list of metric names")


def _check_program(problem: Problem) -> None:
    given = problem.initial_program
    if find_language(problem.language) is None:
        known = ", ".join(repr(each.name) for each in LANGUAGES)
        raise ValueError(f"language is {problem.language!r}; expected one of {known}")
    if not isinstance(given, Mapping):
        _check_text("initial_program", given)
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


def _check_entry_point(given: object, program: str | Mapping[str, str]) -> None:
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


def _check_resources(cpus: object, gpus: object) -> None:
    if not isinstance(cpus, int) or isinstance(cpus, bool) or cpus < 1:
        raise ValueError(f"cpus is {cpus!r}; expected an integer of at least 1")
    is_number = isinstance(gpus, int | float) and not isinstance(gpus, bool)
    number = cast(float, gpus) if is_number else -1.0
    if not 0 <= number < inf or (number > 1 and number % 1):
        raise ValueError(f"gpus is {gpus!r}; expected an integer, or a fraction of one GPU")


def _check_text(name: str, text: object) -> None:
    may_be_empty = name in ("evaluator_source", "source")
    if not isinstance(text, str) or not (text.strip() or may_be_empty):
        kind = "a string" if may_be_empty else "a non-empty string"
        raise ValueError(f"{name} is {text!r}; expected {kind}")
    if not is_storable(text):
        raise ValueError(f"{name} is {shortened(text)}; expected no half of a surrogate pair")


def _check_evaluators(count: object) -> None:
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise ValueError(f"evaluators is {count!r}; expected an integer of at least 1, or None")


def _check_number(name: str, value: float | None, kind: str) -> None:
    if value is None:
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isfinite(value) or (kind == "positive" and value <= 0):
        raise ValueError(f"{name} is {value!r}; expected a {kind} number")


def check_preload(preload: object, layer: Layer, interpreter: str | None) -> None:
    """Refuse names of modules that are not installed, and what is not a Python interpreter."""
    if not isinstance(interpreter, str | None):
        raise ValueError(f"interpreter is {interpreter!r}; expected the path of a Python, or None")
    python = interpreter_at(interpreter) if interpreter is not None else own_interpreter()
    if isinstance(preload, str) or not isinstance(preload, Sequence):
        raise ValueError(f"preload is {preload!r}; expected a list of module names")
    for module in preload:
        parts = module.split(".") if isinstance(module, str) else [module]
        for part in parts:
            _check_name("preload", part, "names of modules, such as 'numpy'")
        is_here = layer is Layer.AUTO or layer.implementation.is_this_system
        if is_here and not python.has_module(parts[0]):
            raise ValueError(f"preload is {list(preload)!r}; expected modules, found no {parts[0]}")


def check_running(problem: Problem) -> None:
    """Refuse settings of how candidates are built, run or called that contradict each other."""
    _check_commands(problem)
    _check_visible(problem)
    if problem.commands is not None or problem.score is None or problem.entry_point is not None:
        return
    if problem.form.is_one_text and find_language(problem.language) is PYTHON:
        raise ValueError(
            "entry_point is None; expected the function that score judges, or run, the command"
            " that runs a candidate"
        )
    if problem.arguments or problem.calls is not None:
        raise ValueError(
            "arguments or calls are given without entry_point and run; expected one of these,"
            " as nothing is called where score judges a text"
        )


def _check_commands(problem: Problem) -> None:
    for name in ("build", "run"):
        command = getattr(problem, name)
        if command is not None and not (isinstance(command, str) and command.strip()):
            raise ValueError(f"{name} is {command!r}; expected a command, or None")
        if command is not None and problem.score is None:
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


def _check_visible(problem: Problem) -> None:
    name = problem.file_name
    if not isinstance(name, str) or (name and ("/" in name or invalid_path_reason(name))):
        raise ValueError(f"file_name is {name!r}; expected the name of a file")
    readable = problem.readable
    is_list = isinstance(readable, Sequence) and not isinstance(readable, str)
    if not is_list or not all(isinstance(path, str) for path in readable):
        raise ValueError(f"readable is {readable!r}; expected a list of paths")
    readable_paths(readable)


def check_calls(problem: Problem) -> None:
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
        if problem.run is not None:
            _check_call_of_command(label, call)
        for name, value in call.items():
            _check_name(f"an argument in {label}", name, "the name of a keyword argument")
            _check_plain(f"{label}[{name!r}]", value)
        _check_plain(label, dict(call))


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
