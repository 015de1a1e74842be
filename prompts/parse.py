"""A generator's reply in, a program out."""

import re
from dataclasses import dataclass

from costada.prompts.changes import patch_summary, rewrite_summary
from costada.prompts.diff import Edit, apply_edits, find_edits, has_unfinished_edit, separated
from costada.prompts.place import missing_line
from costada.prompts.rewrite import find_rewrite
from costada.prompts.splice import completed, required_names

UNREADABLE = re.compile("[\N{REPLACEMENT CHARACTER}\ud800-\udfff]")
"""What cannot be encoded in an answer, and what stands for it where the answer was read."""

MAX_PROGRAM_CHARACTERS = 60_000
"""Longer programs are refused."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A program read from a reply; whether it runs is not known yet.

    Attributes:
        code: Full source text; defines the entry point, if known, and differs from the parent.
        changes: What was changed, one line per edit.
    """

    code: str
    changes: str


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a reply yields no program, worded for the model that wrote it."""

    reason: str


def parse_program(reply: str, parent_code: str, entry_point: str | None) -> Proposal | Rejection:
    """Return the program a reply proposes, or why there is none.

    SEARCH/REPLACE blocks are applied to the parent. If none of them changes it, a program written
    anew is looked for. A part of a program is put into the parent's frame (see `completed`).

    Args:
        reply: Raw text of the answer.
        parent_code: The program the prompt showed as the current one.
        entry_point: Name of the function the evaluator calls; None if it does not say.
    """
    text = separated(reply.replace("\r\n", "\n"))
    if not text.strip():
        return Rejection("The answer is empty.")
    required = required_names(parent_code, entry_point)
    edits = find_edits(text)
    patched = apply_edits(parent_code, edits.complete)
    if _differs(patched.code, parent_code):
        return _checked(patched.code, patch_summary(patched), parent_code, required)
    rewrite = find_rewrite(edits.rest, patched.unmatched, parent_code, required)
    if rewrite is not None:
        return _checked(rewrite, rewrite_summary(rewrite), parent_code, required)
    if edits.complete:
        return Rejection(_nothing_changed(patched.unmatched, parent_code))
    if has_unfinished_edit(edits.rest):
        return Rejection("The answer ends before its first SEARCH/REPLACE block is complete.")
    return Rejection("The answer holds neither a SEARCH/REPLACE block nor a complete program.")


def _checked(
    text: str, changes: str, parent_code: str, required: frozenset[str]
) -> Proposal | Rejection:
    code = completed(text, parent_code, required)
    if code is None:
        names = ", ".join(f"`{name}`" for name in sorted(required))
        return Rejection(f"The program no longer defines {names} at the top level.")
    if not _differs(code, parent_code):
        return Rejection("The answer repeats the current program without a change.")
    if len(UNREADABLE.findall(code)) > len(UNREADABLE.findall(parent_code)):
        return Rejection("The program holds a character that cannot be encoded.")
    if len(code) > MAX_PROGRAM_CHARACTERS:
        return Rejection(
            f"The program has {len(code)} characters; at most {MAX_PROGRAM_CHARACTERS} are allowed."
        )
    return Proposal(code.strip("\n") + "\n", changes)


def _differs(code: str, parent_code: str) -> bool:
    return code.strip() != parent_code.strip()


def _nothing_changed(unmatched: tuple[Edit, ...], parent_code: str) -> str:
    if not unmatched:
        return "The SEARCH/REPLACE blocks leave the program as it is."
    reasons = [_mismatch(edit.search, parent_code) for edit in unmatched]
    return "\n".join(["No SEARCH text occurs in the current program:", *reasons])


def _mismatch(search: str, parent_code: str) -> str:
    if not search.strip():
        return "- A SEARCH text is empty."
    first = search.strip("\n").split("\n")[0]
    missing = missing_line(parent_code, search)
    if missing is None:
        why = "its lines are in the program, but not one behind the other, or more than once"
    else:
        why = f"the program has no line `{missing}`"
    return f"- The one that begins with `{first}`: {why}."
