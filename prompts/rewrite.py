"""The program in a reply that writes it anew instead of editing it."""

from costada.prompts.definitions import defined_names, defines_all
from costada.prompts.diff import Edit, has_unfinished_edit, without_stray_markers
from costada.prompts.fences import find_fences
from costada.prompts.splice import cut_at_markers, from_block_start, has_marker, has_whole_block


def find_rewrite(
    rest: str, unmatched: tuple[Edit, ...], parent_code: str, required: frozenset[str]
) -> str | None:
    """Return the text that most likely is the new program or a part of it.

    A text with a whole EVOLVE block goes before one with the required names, and that before one
    with only something of the parent's block; what is fenced goes before the reply as a whole.
    Among equals the last is taken: models write a program twice in order to correct the first.

    Args:
        rest: The reply without its SEARCH/REPLACE blocks.
        unmatched: Blocks whose SEARCH text is not in the parent. One that puts a whole program
            or EVOLVE block in its place says all the same what is meant.
        parent_code: The program the reply was to change.
        required: Names a complete program defines.
    """
    fences = [fence for fence in find_fences(rest) if not has_unfinished_edit(fence.text)]
    fenced = [without_stray_markers(fence.text) for fence in fences]
    found = _most_complete([*(edit.replacement for edit in unmatched), *fenced], required)
    if found is not None:
        return found
    closed = [fence.text for fence in fences if fence.is_closed]
    parts = [text for text in closed if _is_part(text, parent_code)]
    if parts:
        return parts[-1]
    if has_unfinished_edit(rest):
        return None
    return _most_complete([from_block_start(without_stray_markers(rest))], required)


def _most_complete(texts: list[str], required: frozenset[str]) -> str | None:
    blocks = [text for text in texts if has_whole_block(text)]
    programs = [text for text in texts if required and defines_all(text, required)]
    return next(reversed(blocks or programs), None)


def _is_part(text: str, parent_code: str) -> bool:
    known = defined_names(cut_at_markers(parent_code).block)
    return has_marker(text) or not known or bool(known & defined_names(text))
