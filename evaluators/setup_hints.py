"""Hints for evaluators that fail because of where they run, not because of a program.

The reason is looked for in the texts of the error and the log; if none is found, there is no hint.
"""

import os
import re
from pathlib import Path

from costada.evaluators.folder_settings import SETTINGS_FILE
from costada.evaluators.sandbox.inside.refusals import PROCESS_REFUSED
from costada.evaluators.shown_paths import unshown_reason

MAX_HINT_CHARS = 300
REFUSED = "Operation not permitted"
NO_NETWORK = re.compile(
    r"name resolution|Name or service not known|nodename nor servname|Network is unreachable"
    r"|NameResolutionError|gaierror|APIConnectionError"
)
NETWORK_CODE = re.compile(r"\b(socket|urllib|urlopen|requests|https?|httpx|aiohttp|grpc)\b")
NO_KEY = re.compile(r"KeyError: '(\w+)'")
ENVIRONMENT = re.compile(r"\b(environ|getenv)\b")
NO_MODULE = re.compile(r"No module named '([\w.]+)'")
NOT_FOUND = re.compile(r"\b([\w+-]+): (?:command )?not found")
NOT_STARTED = re.compile(r"No such file or directory: '([\w+-]+)'")
STARTING_CODE = re.compile(r"\b(subprocess|Popen)\b")
UNREADABLE = re.compile(r"FileNotFoundError|PermissionError|OSError: \[Errno 30\]")
NAMED_PATH = re.compile(r"\[Errno \d+\] [^:\n]+: '([^'\n]*)'")
READ_ONLY = "[Errno 30]"
WRITING = re.compile(r"""['"][waxr]b?\+b?['"]|['"][wax][bt]?['"]|mkdir|makedirs|write_|touch\(""")
HOME_FOLDER = re.compile(r"""expanduser|Path\.home\(|['"]HOME['"]""")

NETWORK_HINT = "The sandbox has no network, so an evaluator that needs it cannot run there"
READ_ONLY_HINT = (
    "The folder is read-only in the sandbox: an evaluator writes to the working folder, with paths"
    " relative to that"
)
HOME_HINT = "HOME is the scratch folder in the sandbox, which holds no files of yours"
OUTSIDE_HINT = "{} is outside of the problem's folder: copy it into the folder and change the path"
UNSHOWN_HINT = "{} {}, so it is not shown: copy it into the folder"
FILES_HINT = (
    "An evaluator sees the files of its folder that its code imports or names; declare others as"
    f" files in {SETTINGS_FILE}"
)


def setup_hint(text: str, log: str, source: str) -> str:
    """A hint for an error that no program could avoid; empty for other errors.

    Args:
        text: The error.
        log: What the evaluator printed.
        source: The evaluator's text.
    """
    said = f"{text}\n{log}"
    if process := refused_process(log):
        return process
    is_refused = REFUSED in said and NETWORK_CODE.search(f"{said}\n{source}")
    if NO_NETWORK.search(said) or is_refused:
        return NETWORK_HINT
    for name in NO_KEY.findall(said) if ENVIRONMENT.search(f"{said}\n{source}") else ():
        if name in source and name.isupper():
            return (
                f"The sandbox does not pass on environment variables such as {name}, so an"
                " evaluator that needs them cannot run there"
            )
    if found := NO_MODULE.search(said):
        return f"If the evaluator needs {found[1]}, install it: costada prepare"
    starts = STARTING_CODE.search(f"{said}\n{source}")
    if found := NOT_FOUND.search(said) or (starts and NOT_STARTED.search(said)):
        return (
            f"If {found[1]} is a program, it is missing: install it, or name its folder as readable"
            f" in {SETTINGS_FILE}"
        )
    return ""


def file_hint(text: str, source: str, folder: Path) -> str:
    """A hint for a file that an evaluator cannot read or write; empty for other errors."""
    kind = text.partition("\n")[0]
    if not UNREADABLE.match(kind):
        return ""
    found = NAMED_PATH.search(kind)
    path = found[1] if found else ""
    place = folder / path
    is_there = place.is_relative_to(folder) and place.exists()
    if is_there and (reason := unshown_reason(place, folder)):
        return UNSHOWN_HINT.format(place, reason)
    if READ_ONLY in kind or ("PermissionError" in kind and WRITING.search(text)):
        return READ_ONLY_HINT
    if HOME_FOLDER.search(text) or path.startswith("~"):
        return f"{HOME_HINT}: copy the file into the problem's folder and change the path"
    if os.path.isabs(path) and not Path(path).is_relative_to(folder):
        return OUTSIDE_HINT.format(path)
    return f"{FILES_HINT}; {HOME_HINT}" if HOME_FOLDER.search(source) else FILES_HINT


def refused_process(log: str) -> str:
    """What a log says of the first process that was refused to an evaluator; empty if nothing."""
    said = (line for line in log.splitlines() if line.startswith(PROCESS_REFUSED))
    return next(said, "")[:MAX_HINT_CHARS]
