"""The files that a program makes beside the evaluator, as far as texts name them."""

import re
from collections.abc import Iterable

FILE_NAME = re.compile(r"[\w./+-]*[\w+-]\.[A-Za-z]\w*")
QUOTED_NAME = re.compile(rf"[\"']({FILE_NAME.pattern})[\"']")
IMPORTED = (".py", ".pyc", ".so", ".pth")


def named_outputs(names: Iterable[str]) -> list[str]:
    """Those of some words that are names of files with an ending, but for code of Python."""
    return [name for name in names if FILE_NAME.fullmatch(name) and not name.endswith(IMPORTED)]


def quoted_names(text: str) -> set[str]:
    """The names of such files in the quotes of a program."""
    return {*named_outputs(QUOTED_NAME.findall(text))}
