"""Tells whether the score command of a repository runs the candidate's code in its own process.

It does not where it is one unchanged Python file that imports nothing a candidate may have written.
What such a command starts can be confined by itself. Wherever that cannot be read, as of pytest,
of a build, or of a program in another language, the answer is that it does.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import PurePosixPath

from costada.evaluators.candidate_imports import may_import_candidate
from costada.evaluators.import_paths import IMPORT_PATH, imported_modules, module_files
from costada.evaluators.original_folder import Base
from costada.evaluators.sandbox.inside.orders import SOURCES
from costada.evaluators.shown_paths import read_shown
from costada.values.program_form import matches

PYTHON = re.compile(r"python[\d.]*")
OPTION = re.compile(r"-[BObquv]+")
"""Options of Python that leave its import path and its start as they are."""

AT_START = ("sitecustomize", "usercustomize")
CHANGING = (IMPORT_PATH, "addsitedir", "PYTHONPATH")


def script_apart(words: Sequence[str], base: Base, patterns: Sequence[str]) -> str:
    """The file that a command runs without the candidate's code; empty if there is none.

    Args:
        words: The command.
        base: The files that no candidate changes.
        patterns: Those that it may change or add.
    """
    rest = [*words[1:]]
    while rest and OPTION.fullmatch(rest[0]):
        rest.pop(0)
    script = str(PurePosixPath(rest[0])) if rest else ""
    if not PYTHON.fullmatch(words[0]) or script not in base.paths or not script.endswith(".py"):
        return ""
    places = dict.fromkeys((SOURCES, "", str(PurePosixPath(script).parent).removeprefix(".")))
    root = base.repository.root
    sources: dict[str, str] = {}
    names = {*sys.stdlib_module_names, *AT_START}
    waiting = [script]
    while waiting:
        path = waiting.pop()
        if path in sources:
            continue
        sources[path] = read_shown(root / path, root, with_hidden=True).decode("utf-8", "replace")
        for name in imported_modules(sources[path]):
            names.add(name.lstrip(".").partition(".")[0])
            folders = [root / place for place in places]
            if name.startswith("."):
                folders = [(root / path).parent]
            found = [file for folder in folders for file in module_files(name.lstrip("."), folder)]
            paths = [str(file.relative_to(root)) for file in found]
            if any(_is_allowed(path, patterns) for path in paths):
                return ""
            waiting += [path for path in paths if path in base.paths]
    for place in places:
        for name in names - {""}:
            module = str(PurePosixPath(place, name))
            files = (f"{module}.py", f"{module}/__init__.py", f"{module}.so", f"{module}/_.py")
            if any(_is_allowed(path, patterns) for path in files):
                return ""
    texts = sources.values()
    changes_path = any(word in text for text in texts for word in CHANGING)
    return "" if changes_path or may_import_candidate(texts) else script


def _is_allowed(path: str, patterns: Sequence[str]) -> bool:
    return any(matches(path, pattern) for pattern in patterns)
