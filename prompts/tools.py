"""The tools a generating model may call: their descriptions, and the texts they answer with."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from costada.prompts.function_edits import FILE_SIGN
from costada.prompts.render import Prompt, PromptOrder, fields_of, render
from costada.prompts.requests import PYTHON_TEXT, ProgramView
from costada.values.program_form import ProgramForm

EVALUATE, READ, SEARCH, SUBMIT = ("evaluate_candidate", "read_program", "search_archive", "submit")

MAX_FOUND = 8
"""Programs that a search of the archive lists at most."""

CHANGES = "SEARCH/REPLACE blocks, or one complete program in a {} fence."
CHANGES_OF_FILES = f"Blocks and fences, each below a line `{FILE_SIGN} path`, as the task says."
"""What the argument `changes` holds, for a program of one text and of several files."""

_BASE = {
    "type": "string",
    "description": "Id of the program that the blocks change; the current program if left out.",
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


def tools_for(form: ProgramForm) -> tuple[Mapping[str, Any], ...]:
    """The tools as OpenAI describes them; every argument is a string."""
    words = CHANGES.format(form.language.fence) if form.is_one_text else CHANGES_OF_FILES
    changes = {"type": "string", "description": words}
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
    )


TOOLS = tools_for(PYTHON_TEXT)
"""The tools for programs of one Python text."""

_PARAMETERS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
"""The schema of each tool's arguments by its name."""


@dataclass(frozen=True, slots=True)
class FoundProgram:
    """A program as a tool shows it: its id, what was changed, and what a prompt shows."""

    id: str
    changes: str
    program: ProgramView


def tools_section(answers: int, evaluations: int) -> str:
    """The part of a prompt that explains the tools and how often they may be used."""
    return render("tools.txt", answers=answers, evaluations=evaluations)


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


def call_error(name: str, arguments: Mapping[str, object]) -> str | None:
    """Error message for an invalid tool call, None if valid."""
    if name not in _PARAMETERS:
        return f"There is no tool {name!r}; the tools are {', '.join(_PARAMETERS)}."
    known = _PARAMETERS[name]["properties"]
    for field in _PARAMETERS[name]["required"]:
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
