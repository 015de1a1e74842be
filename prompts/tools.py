"""The tools a generating model may call: their descriptions, and the texts they answer with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from costada.prompts.function_edits import FILE_SIGN
from costada.prompts.render import Prompt, PromptOrder, fields_of, render
from costada.prompts.requests import PYTHON_TEXT, ProgramView
from costada.values.program_form import ProgramForm

EVALUATE, READ, SEARCH, SUBMIT = ("evaluate_candidate", "read_program", "search_archive", "submit")
READ_FILE, GREP, OUTLINE, RUN_TESTS = "read", "grep", "outline", "run_tests"
"""Those for the files of a repository."""

MAX_FOUND = 8
"""Programs that a search of the archive lists at most."""

CHANGES = "SEARCH/REPLACE blocks, or one complete program in a {} fence."
CHANGES_OF_FILES = f"Blocks and fences, each below a line `{FILE_SIGN} path`, as the task says."
"""What the argument `changes` holds, for a program of one text and of several files."""

_BASE = {
    "type": "string",
    "description": "Id of the program that is meant; the current program if left out.",
}
_WORDS = {"type": "string", "description": "Words that the program or its changes must hold."}
_ID = {"type": "string", "description": "Id of a program."}
_CANDIDATE = {"type": "string", "description": "Id of a candidate that was evaluated before."}


def _tool(
    name: str, description: str, required: tuple[str, ...] = (), **properties: Mapping[str, str]
) -> Mapping[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def tools_for(
    form: ProgramForm, *, in_repository: bool = False, has_tests: bool = False
) -> tuple[Mapping[str, Any], ...]:
    """The tools as OpenAI describes them; every argument is a string.

    Args:
        form: Of the programs.
        in_repository: Whether they belong to a repository, whose files the model may look at.
        has_tests: Whether the repository has a command that tests.
    """
    words = CHANGES.format(form.language.fence) if form.is_one_text else CHANGES_OF_FILES
    changes = {"type": "string", "description": words}
    of_repository = (*_looking(), *([_testing(changes)] if has_tests else []))
    return (
        _tool(
            EVALUATE,
            "Run a changed program and return its score or its error, and an id for it.",
            ("changes",),
            changes=changes,
            base=_BASE,
        ),
        _tool(READ, "Return the text and the score of a program.", ("id",), id=_ID),
        _tool(SEARCH, "List the best programs found so far, with their ids.", words=_WORDS),
        _tool(
            SUBMIT,
            "Hand in the result and end: an evaluated candidate by its id, or changes.",
            candidate=_CANDIDATE,
            changes=changes,
            base=_BASE,
        ),
        *(of_repository if in_repository else ()),
    )


def _looking() -> tuple[Mapping[str, Any], ...]:
    """The tools that look at the files of a repository, with those of a program in place."""
    path = {"type": "string", "description": "Path of a file below the repository."}
    lines = {"type": "string", "description": "A range such as 10-25; all if left out."}
    pattern = {"type": "string", "description": "A regular expression of Python."}
    glob = {"type": "string", "description": "Pattern of paths or names; all if left out."}
    defined = "List the functions and classes of a Python file with their lines."
    return (
        _tool(READ_FILE, "Return lines of a file.", ("path",), path=path, lines=lines, base=_BASE),
        _tool(GREP, "Search in files.", ("pattern",), pattern=pattern, glob=glob, base=_BASE),
        _tool(OUTLINE, defined, ("path",), path=path, base=_BASE),
    )


def _testing(changes: Mapping[str, str]) -> Mapping[str, Any]:
    """The tool that tests a draft."""
    names = "Tests in place of all, as the test command takes them, separated by spaces."
    return _tool(
        RUN_TESTS,
        "Run the tests on a changed program without scoring it; return how they end, and an id for"
        " the program, which `base` and `submit` take.",
        changes=changes,
        tests={"type": "string", "description": names},
        base=_BASE,
    )


TOOLS = tools_for(PYTHON_TEXT)
"""The tools for programs of one Python text."""


@dataclass(frozen=True, slots=True)
class FoundProgram:
    """A program as a tool shows it: its id, what was changed, and what a prompt shows."""

    id: str
    changes: str
    program: ProgramView


def tools_section(
    answers: int, evaluations: int, *, in_repository: bool = False, has_tests: bool = False
) -> str:
    """The part of a prompt that explains the tools and how often they may be used."""
    return render(
        "tools.txt",
        answers=answers,
        evaluations=evaluations,
        in_repository=in_repository,
        has_tests=has_tests,
    )


def with_section(prompt: Prompt, section: str, order: PromptOrder) -> Prompt:
    """The prompt of an attempt with the part about tools, which every attempt repeats."""
    parts = (prompt.user, section) if order == "paper" else (section, prompt.user)
    return replace(prompt, user="\n".join(parts))


def trial_text(found: FoundProgram) -> str:
    """The answer about a candidate that was evaluated for the model."""
    return render("trial.txt", **fields_of(found))


def program_text(found: FoundProgram, form: ProgramForm = PYTHON_TEXT) -> str:
    """A program with its score, as a model asked for it."""
    return render("program.txt", **fields_of(found), form=form)


def listing(found: tuple[FoundProgram, ...]) -> str:
    """One line for each of the first `MAX_FOUND` programs, and how many there are more."""
    listed = found[:MAX_FOUND]
    return render("listing.txt", programs=listed, omitted=len(found) - len(listed))


def allowance_text(answers: int, evaluations: int) -> str:
    """What is left to a model within one attempt, in a sentence."""
    return render("allowance.txt", answers=answers, evaluations=evaluations)


def call_error(
    name: str, arguments: Mapping[str, object], tools: Sequence[Mapping[str, Any]] = TOOLS
) -> str | None:
    """Error message for an invalid tool call, None if valid."""
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    if name not in schemas:
        return f"There is no tool {name!r}; the tools are {', '.join(schemas)}."
    known = schemas[name]["properties"]
    for field in schemas[name]["required"]:
        if field not in arguments:
            return f"{name} needs the argument {field!r}."
    for field, value in arguments.items():
        if field not in known:
            return f"{name} takes no argument {field!r}, only {', '.join(known)}."
        if not isinstance(value, str):
            return f"The argument {field!r} of {name} must be a string."
    if name == SUBMIT and ("candidate" in arguments) is ("changes" in arguments):
        return f"{name} needs either 'candidate' or 'changes'."
    return None
