"""Functions as a reply names them, `path::name`: how a new text takes the place of one."""

import re
from dataclasses import dataclass
from difflib import get_close_matches, unified_diff

from costada.prompts.function_blocks import Piece, line_of_imports, sort_block
from costada.values.python_source import (
    FUNCTION_SIGN,
    Definition,
    PythonSource,
    read_python,
    shifted,
)

FILE_SIGN = "FILE:"
"""Word that prompts ask for before the path of a file or function."""

MAX_NEAREST = 3
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*(?:\(\))?")


@dataclass(frozen=True, slots=True)
class FunctionPlace:
    """A function or class of a file; its name has those of the classes around it before dots."""

    path: str
    name: str


def function_place(path: str) -> FunctionPlace | None:
    """What `path::name` names; None if it is not of this form."""
    file, sign, name = path.partition(FUNCTION_SIGN)
    # As pytest writes a method: path::Class::method.
    name = name.replace(FUNCTION_SIGN, ".")
    if not sign or not file or not _NAME.fullmatch(name):
        return None
    return FunctionPlace(file.strip(), name.removesuffix("()"))


@dataclass(frozen=True, slots=True)
class Replaced:
    """A file with a new text of one function."""

    text: str


def replace_function(text: str, place: FunctionPlace, new: str) -> Replaced | str:
    """The text of a file with a new function in the place of the old one, or why there is none.

    The old decorators are replaced too, and the new text is indented like the old one. It may hold
    more beside the one that is named, as `sort_block` says.

    Args:
        text: The file, its lines ending in LF.
        place: The function.
        new: Its new text.
    """
    named = f"`{place.path}{FUNCTION_SIGN}{place.name}`"
    source = read_python(text)
    if source is None:
        return f"{named} cannot be found: the file is not Python; expected SEARCH/REPLACE blocks."
    found = source.find(place.name)
    if not found:
        return f"{named} does not exist. {_nearest(source, place.name)}"
    if len(found) > 1:
        return (
            f"{named} is defined {len(found)} times; expected SEARCH/REPLACE blocks, which say"
            " where."
        )
    old = found[0]
    given = read_python(new.strip("\n"))
    if given is None:
        return f"The new text of {named} is not complete Python: a bracket or string is left open."
    target = _target(given, place.name)
    if target is None:
        defined = ", ".join(f"`{each.name}`" for each in given.definitions[:MAX_NEAREST])
        return (
            f"The block for {named} defines {defined or 'no function'}; expected the complete"
            f" function `{place.name.rpartition('.')[2]}`, from its decorators to its last line."
        )
    block = sort_block(source, old, given, target)
    if isinstance(block, Piece):
        return f"The block for {named} also {_without_place(source, block, place)}"
    part = read_python(block.text)
    if part is None:
        return f"The new text of {named} is not complete Python: a bracket or string is left open."
    top = line_of_imports(source, old)
    whole = [
        *source.lines[:top],
        *block.imports,
        *source.lines[top : old.first],
        *shifted(part, _indent_of(part), old.indent),
        *source.lines[old.end :],
    ]
    return Replaced("\n".join(whole))


def _target(given: PythonSource, name: str) -> Definition | None:
    """The function of a new text that is named, or the method in a class around it."""
    short = name.rpartition(".")[2]
    if found := given.find(short):
        return found[0]
    inner = given.find(name) or tuple(
        each for each in given.definitions if each.name.endswith(f".{short}")
    )
    return inner[0] if len(inner) == 1 else None


def _without_place(source: PythonSource, piece: Piece, place: FunctionPlace) -> str:
    """Why a part of a block has no place in the file, and where to write it."""
    outer = place.name.rpartition(".")[0]
    name = f"{outer}.{piece.name}" if outer else piece.name
    if piece.is_definition and source.find(name):
        return (
            f"defines `{piece.name}`, which the file has already; expected it in a block of its"
            f" own, below `{FILE_SIGN} {place.path}{FUNCTION_SIGN}{name}`."
        )
    shown = piece.text.partition("\n")[0]
    return (
        f"holds `{shown}`, which cannot go where the function is; expected it in a SEARCH/REPLACE"
        f" block of `{place.path}`."
    )


def _indent_of(source: PythonSource) -> str:
    first = next((line for line in source.lines if line.strip()), "")
    return first[: len(first) - len(first.lstrip())]


def _nearest(source: PythonSource, name: str) -> str:
    """A sentence on the names that a file defines."""
    names = list(dict.fromkeys(each.name for each in source.definitions))
    short = {each.rpartition(".")[2]: each for each in names}
    nearest = get_close_matches(name, names, n=MAX_NEAREST)
    nearest += [
        short[each]
        for each in get_close_matches(name.rpartition(".")[2], short, n=MAX_NEAREST)
        if short[each] not in nearest
    ]
    shown = ", ".join(f"`{each}`" for each in nearest[:MAX_NEAREST] or names[:MAX_NEAREST])
    if not names:
        return "The file defines no function."
    return f"The nearest names are {shown}." if nearest else f"The file defines {shown}."


def changed_parts(text: str, before: str, path: str) -> dict[str, str]:
    """What differs of a file from another text of it: functions by `path::name`, and other lines.

    Of a class whose methods alone differ, these are given. The whole text by its path if one of the
    two is not Python.
    """
    new, old = read_python(text), read_python(before)
    if new is None or old is None:
        return {path: text}
    functions = [[each for each in one.definitions if not each.is_class] for one in (new, old)]
    known = {(each.name, old.text(each)) for each in functions[1]}
    changed = [each for each in functions[0] if (each.name, new.text(each)) not in known]
    parts = {f"{path}{FUNCTION_SIGN}{each.name}": new.text(each) for each in changed}
    rests = [_rest(one, inside) for one, inside in zip((new, old), functions, strict=True)]
    if rests[0] != rests[1]:
        lines = list(unified_diff(rests[1], rests[0], n=0, lineterm=""))[2:]
        parts[f"{path}, outside of functions"] = "\n".join(lines)
    return parts


def _rest(source: PythonSource, functions: list[Definition]) -> list[str]:
    """The lines outside of functions that are not blank."""
    inside = {line for each in functions for line in range(each.first, each.end)}
    return [
        line for number, line in enumerate(source.lines) if number not in inside and line.strip()
    ]
