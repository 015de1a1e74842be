"""A generator's reply in, a changed text out, in any language."""

from collections.abc import Sequence

from costada.prompts.edits import (
    Edit,
    apply_edits,
    find_edits,
    has_unfinished_edit,
    mismatch,
    patch_summary,
    rewrite_summary,
    with_markers_on_own_lines,
)
from costada.prompts.fences import InfoFence, find_info_fences
from costada.prompts.programs import DOCUMENTS
from costada.prompts.replies import (
    ANY_MARKS,
    MAX_PROGRAM_CHARACTERS,
    UNREADABLE,
    Proposal,
    Rejection,
    complete_program,
    cut_at_markers,
    has_whole_block,
    required_names,
)
from costada.values.language import PYTHON, TEXT, Language, find_language

LEAST_SHARED = 0.2
"""Share of a fence's lines that the parent has where its language is another one."""

LEAST_LENGTH = 0.5
"""Share of the longest fence's length from which on a later fence counts as its correction."""


FAMILIES = (("C", "C++", "CUDA", "Metal"), ("JavaScript", "TypeScript"), ("YAML", "JSON", "TOML"))
"""Languages whose names models use for one another."""


def are_related(one: Language, other: Language) -> bool:
    """Whether two languages are equal, or models use the name of one for the other."""
    return one == other or any({one.name, other.name} <= set(family) for family in FAMILIES)


def parse_text(reply: str, parent: str, language: Language) -> Proposal | Rejection:
    """The text that a reply proposes in a language other than Python, or why there is none.

    SEARCH/REPLACE blocks are applied to the parent. If none of them changes it, a fence with the
    whole text, or with the part between its EVOLVE-BLOCK marks, is looked for.
    """
    text = with_markers_on_own_lines(reply.replace("\r\n", "\n"))
    if not text.strip():
        return Rejection("The answer is empty.")
    edits = find_edits(text)
    changed, changes, unmatched = edited(parent, edits.complete)
    if changed == parent:
        found = find_whole_text(edits.rest, parent, language)
        if isinstance(found, Rejection):
            return _no_text(unmatched, bool(edits.complete), parent) or found
        changed = rewritten(found, parent, language) or ""
        changes = rewrite_summary(found)
    if changed.strip() == parent.strip():
        return Rejection("The answer repeats the current program without a change.")
    fault = text_fault(changed, parent)
    return Rejection(f"The program {fault}.") if fault else Proposal(changed, changes)


def _no_text(unmatched: Sequence[Edit], has_edits: bool, parent: str) -> Rejection | None:
    """Why the blocks of a reply that changed nothing did not; None if there are none."""
    if unmatched:
        reasons = [mismatch(edit, parent) for edit in unmatched]
        return Rejection("\n".join(["No SEARCH text occurs in the current program:", *reasons]))
    if has_edits:
        return Rejection("The SEARCH/REPLACE blocks leave the program as it is.")
    return None


def edited(parent: str, edits: tuple[Edit, ...]) -> tuple[str, str, tuple[Edit, ...]]:
    """A text after edits with its line ends kept, what was changed, and the edits without place."""
    has_returns = "\r\n" in parent
    patched = apply_edits(parent.replace("\r\n", "\n") if has_returns else parent, edits)
    code = patched.code.replace("\n", "\r\n") if has_returns else patched.code
    return code, patch_summary(patched), patched.unmatched


def text_fault(text: str, parent: str) -> str | None:
    """Why a changed text cannot be that of a candidate; None if it can."""
    if len(UNREADABLE.findall(text)) > len(UNREADABLE.findall(parent)):
        return "holds a character that cannot be encoded"
    limit = max(MAX_PROGRAM_CHARACTERS, len(parent))
    if len(text) > limit:
        return f"has {len(text)} characters; at most {limit} are allowed"
    return None


def find_whole_text(rest: str, parent: str, language: Language) -> str | Rejection:
    """The fence of a reply that most likely holds the new text, or why there is none.

    Preferred is one with both EVOLVE-BLOCK marks, then one of the right language, then one that
    names none, then one of another language that shares lines with the parent. Among those that
    are not much shorter than the longest, the last is taken.
    """
    fences = [
        fence
        for fence in find_info_fences(rest.split("\n"))
        if fence.text.strip() and not fence.is_diff and not has_unfinished_edit(fence.text)
    ]
    ranks = {fence: _rank(fence, parent, language) for fence in fences}
    usable = [fence for fence in fences if ranks[fence] > 0]
    if not usable:
        block = cut_at_markers(rest, ANY_MARKS)
        if block.head and block.tail and not fences:
            start, end = (line.strip().split("\n") for line in (block.head, block.tail))
            return f"{start[-1]}{block.block}{end[0]}"
        if has_unfinished_edit(rest):
            return Rejection("The answer ends before its first SEARCH/REPLACE block is complete.")
        if any(not fence.is_closed for fence in fences):
            return Rejection("The answer ends before its program is complete.")
        return Rejection("The answer holds neither a SEARCH/REPLACE block nor a complete program.")
    best = [fence for fence in usable if ranks[fence] == max(ranks.values())]
    longest = max(len(fence.text) for fence in best)
    return [each.text for each in best if len(each.text) >= LEAST_LENGTH * longest][-1]


def _rank(fence: InfoFence, parent: str, language: Language) -> int:
    if has_whole_block(fence.text, ANY_MARKS):
        return 4
    if not fence.is_closed:
        return 0
    found = find_language(fence.word) if fence.word else TEXT
    if found == language:
        return 3
    if found in (None, TEXT) or are_related(found, language):
        return 2
    if language == TEXT and found.name in DOCUMENTS:
        return 2
    return 1 if shared(fence.text, parent) >= LEAST_SHARED else 0


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
