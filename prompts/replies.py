"""The whole text of a file as a reply gives it, in any language."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from costada.prompts.edits import (
    Edit,
    apply_edits,
    has_unfinished_edit,
    patch_summary,
    without_stray_markers,
)
from costada.prompts.evolve_blocks import (
    ANY_MARKS,
    PYTHON_MARKS,
    complete_program,
    cut_at_markers,
    defined_names,
    defines_all,
    has_marker,
    has_whole_block,
    required_names,
)
from costada.prompts.fences import Fence, find_fences
from costada.prompts.programs import DOCUMENTS
from costada.values.program_form import PYTHON, TEXT, Language, find_language

UNREADABLE = re.compile("[\N{REPLACEMENT CHARACTER}\ud800-\udfff]")
"""Characters that cannot be encoded, and the one that replaces them when an answer is read."""

MAX_PROGRAM_CHARACTERS = 60_000
"""Longer programs are refused."""

MIN_SHARED = 0.2
"""Share of a fence's lines that the parent has where its language is another one."""

MIN_LENGTH = 0.5
"""Share of the longest fence's length from which on a later fence counts as its correction."""


FAMILIES = (("C", "C++", "CUDA", "Metal"), ("JavaScript", "TypeScript"), ("YAML", "JSON", "TOML"))
"""Languages whose names models use for one another."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a reply yields no program, worded for the model that wrote it."""

    reason: str


def are_related(one: Language, other: Language) -> bool:
    """Whether two languages are equal, or models use the name of one for the other."""
    return one == other or any({one.name, other.name} <= set(family) for family in FAMILIES)


def edited(parent: str, edits: tuple[Edit, ...]) -> tuple[str, str, tuple[Edit, ...]]:
    """A text after edits with its line ends kept, what was changed, and the edits without place."""
    has_returns = "\r\n" in parent
    patched = apply_edits(parent.replace("\r\n", "\n") if has_returns else parent, edits)
    code = patched.code.replace("\n", "\r\n") if has_returns else patched.code
    return code, patch_summary(patched), patched.unmatched


def invalid_text_reason(text: str, parent: str) -> str | None:
    """Why a changed text cannot be that of a candidate; None if it can."""
    if len(UNREADABLE.findall(text)) > len(UNREADABLE.findall(parent)):
        return "holds a character that cannot be encoded"
    limit = max(MAX_PROGRAM_CHARACTERS, len(parent))
    if len(text) > limit:
        return f"has {len(text)} characters; at most {limit} are allowed"
    return None


def find_whole_text(
    rest: str,
    unmatched: Sequence[Edit],
    parent: str,
    language: Language,
    entry_point: str | None = None,
) -> str | Rejection:
    """The text that most likely is the new one or the part of it between the marks, or why none is.

    Args:
        rest: The reply without its SEARCH/REPLACE blocks.
        unmatched: Blocks whose SEARCH text is not in the parent.
        parent: The text that the reply was to change.
        language: Its language.
        entry_point: Name of a function that a Python text must define; None if there is none.
    """
    fences = [fence for fence in find_fences(rest) if not has_unfinished_edit(fence.text)]
    if language == PYTHON:
        required = required_names(parent, entry_point)
        found = _find_python(rest, fences, unmatched, parent, required)
    else:
        fences = [fence for fence in fences if fence.text.strip() and not fence.is_diff]
        found = _find_ranked(rest, fences, parent, language)
    if found is not None:
        return found
    if has_unfinished_edit(rest):
        return Rejection("The answer ends before its first SEARCH/REPLACE block is complete.")
    if language != PYTHON and any(not fence.is_closed for fence in fences):
        return Rejection("The answer ends before its program is complete.")
    return Rejection("The answer holds neither a SEARCH/REPLACE block nor a complete program.")


def _find_python(
    rest: str,
    fences: Sequence[Fence],
    unmatched: Sequence[Edit],
    parent: str,
    required: frozenset[str],
) -> str | None:
    """A Python text, from the fences or the whole reply.

    Preferred is a text with a whole EVOLVE block, then one with the required names, then one with
    a definition of the parent's block; fenced texts come before the whole reply. Among equals the
    last is taken: models write a program again to correct it. The replacement of an unmatched block
    counts if it is a whole program or EVOLVE block.
    """
    replacements = [edit.replacement for edit in unmatched]
    fenced = [without_stray_markers(fence.text) for fence in fences]
    found = _most_complete([*replacements, *fenced], required)
    if found is not None:
        return found
    known = defined_names(cut_at_markers(parent).block)
    for fence in reversed(fences):
        is_part = has_marker(fence.text) or not known or known & defined_names(fence.text)
        if fence.is_closed and is_part:
            return fence.text
    if has_unfinished_edit(rest):
        return None
    whole = without_stray_markers(rest)
    start = PYTHON_MARKS[0].search(whole)
    return _most_complete([whole[start.start() :] if start else whole], required)


def _most_complete(texts: list[str], required: frozenset[str]) -> str | None:
    blocks = [text for text in texts if has_whole_block(text)]
    programs = [text for text in texts if required and defines_all(text, required)]
    return next(reversed(blocks or programs), None)


def _find_ranked(rest: str, fences: Sequence[Fence], parent: str, language: Language) -> str | None:
    """A text in another language, from the fences or between marks without a fence.

    Preferred is a fence with both EVOLVE-BLOCK marks, then one of the right language, then one that
    names none, then one of another language that shares lines with the parent. Among those that
    are not much shorter than the longest, the last is taken.
    """
    ranks = {fence: _rank(fence, parent, language) for fence in fences}
    highest = max(ranks.values(), default=0)
    if highest > 0:
        best = [fence for fence in fences if ranks[fence] == highest]
        longest = max(len(fence.text) for fence in best)
        return [each.text for each in best if len(each.text) >= MIN_LENGTH * longest][-1]
    block = cut_at_markers(rest, ANY_MARKS)
    if fences or not (block.head and block.tail):
        return None
    start, end = (line.strip().split("\n") for line in (block.head, block.tail))
    return f"{start[-1]}{block.block}{end[0]}"


def _rank(fence: Fence, parent: str, language: Language) -> int:
    if has_whole_block(fence.text, ANY_MARKS):
        return 4
    if not fence.is_closed:
        return 0
    found = find_language(fence.language) if fence.language else TEXT
    if found == language:
        return 3
    if found in (None, TEXT) or are_related(found, language):
        return 2
    if language == TEXT and found.name in DOCUMENTS:
        return 2
    return 1 if shared(fence.text, parent) >= MIN_SHARED else 0


def shared(text: str, parent: str) -> float:
    """Share of the lines of a text that another one has; blank lines do not count."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    known = {line.strip() for line in parent.split("\n")}
    return sum(line in known for line in lines) / max(1, len(lines))


def rewritten(
    text: str, parent: str, language: Language, entry_point: str | None = None
) -> str | None:
    """A rewritten text in the frame of its parent, where it is the part between the marks alone.

    Args:
        text: What a reply gives as the new text.
        parent: The text that it replaces; empty if there is none.
        language: Their language.
        entry_point: Name of a function that a Python text must define; None if there is none.

    Returns:
        The whole text; None if a Python text lacks a name that it must define.
    """
    if language == PYTHON:
        whole = complete_program(text, parent, required_names(parent, entry_point))
    else:
        whole = _framed(text, parent)
    return None if whole is None else whole.strip("\n") + "\n"


def _framed(text: str, parent: str) -> str:
    frame, part = cut_at_markers(parent, ANY_MARKS), cut_at_markers(text, ANY_MARKS)
    if not (frame.head and frame.tail):
        return text
    around = f"{frame.head}\n{frame.tail}".split("\n")
    outside = [line for line in around if line.strip() and "EVOLVE-BLOCK" not in line]
    known = {line.strip() for line in text.split("\n")}
    kept = sum(line.strip() in known for line in outside)
    if outside and 2 * kept >= len(outside):
        return text
    return f"{frame.head}\n{part.block.strip(chr(10))}\n{frame.tail}"
