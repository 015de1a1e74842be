"""Functions that a user names, found among the files of a program."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import PurePosixPath

from costada.values.python_source import FUNCTION_SIGN, read_python

MAX_NEAREST = 3


def resolve_focus(names: Sequence[str], files: Mapping[str, str]) -> tuple[str, ...]:
    """Each name as `path::name`; it may be given as `module.name` too.

    Raises:
        ValueError: If a file does not define one, or several do.
    """
    defined = {
        f"{path}{FUNCTION_SIGN}{each.name}": (*PurePosixPath(path).with_suffix("").parts, each.name)
        for path, text in files.items()
        if path.endswith(".py") and (source := read_python(text.replace("\r\n", "\n")))
        for each in source.definitions
    }
    dotted = {
        place: f".{'.'.join(part for part in parts if part != '__init__')}"
        for place, parts in defined.items()
    }
    found = []
    for name in names:
        fitting = [place for place in defined if place == name]
        fitting = fitting or [
            place for place, words in dotted.items() if words.endswith(f".{name}")
        ]
        if len(fitting) != 1:
            nearest = fitting or get_close_matches(name, [*defined, *dotted.values()], MAX_NEAREST)
            listed = ", ".join(repr(each.lstrip(".")) for each in nearest[:MAX_NEAREST])
            found_text = f"{len(fitting)} functions have" if fitting else "no function has"
            raise ValueError(
                f"focus has {name!r}; {found_text} this name; expected 'path::name' or"
                f" 'module.name' of one{f', such as {listed}' if listed else ''}"
            )
        found.append(fitting[0])
    return tuple(found)
