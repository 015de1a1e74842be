"""Hints for evaluators that fail because of where they run, not because of a program.

The cause is looked for in the error, the log, the evaluator's text and its folder; if there is no
evidence for one, there is no hint.
"""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from costada.evaluators.folder_settings import SETTINGS_FILE
from costada.evaluators.sandbox.inside.error_reports import HINT, PROCESS_REFUSED
from costada.evaluators.sandbox.interpreter import own_interpreter
from costada.evaluators.sandbox.layers import UNCONFINED, Layer
from costada.evaluators.shown_paths import unshown_reason

MAX_HINT_CHARS = 300
MAX_LEVELS = 3
"""How far above the folder a file is looked for."""

REFUSED = "Operation not permitted"
FRAME = '  File "'
SHARED = re.compile(
    r"/dev/shm/|'/psm_|SemLock|SocketListener|multiprocessing/(managers|reduction)"  # noqa: S108
)
DENIED_SEMAPHORE = re.compile(r"\[Errno 13\] Permission denied(?!: )")
POOLS = re.compile(r"\b(multiprocessing|concurrent\.futures|joblib)\b")
NO_NETWORK = re.compile(
    r"name resolution|Name or service not known|nodename nor servname|Network is unreachable"
    r"|NameResolutionError|gaierror|APIConnectionError"
)
NETWORK_CODE = re.compile(r"\b(socket|urllib|urlopen|requests|https?|httpx|aiohttp|grpc)\b")
NETWORK_IMPORT = re.compile(
    r"^\s*(?:from|import)\s+(?:socket|urllib|requests|http|httpx|aiohttp|grpc|openai)\b", re.M
)
NO_KEY = re.compile(r"KeyError: '(\w+)'")
ENVIRONMENT = re.compile(r"\b(environ|getenv)\b")
VARIABLE = re.compile(r"""(?:environ(?:\.get)?\s*[\[(]|getenv\()\s*['"]([A-Z]\w{3,})['"]""")
NO_MODULE = re.compile(r"No module named '([\w.]+)'")
SYSTEM_VARIABLE = re.compile(
    r"HOME|USER(NAME)?|LOGNAME|PATH|PWD|OLDPWD|SHELL|TERM|LANG|LC_\w+|TZ|TMP(DIR)?|TEMP|HOSTNAME"
    r"|DISPLAY|EDITOR|VIRTUAL_ENV|CONDA_\w+|XDG_\w+|[A-Z]+_NUM_THREADS|CUDA_VISIBLE_DEVICES"
)
"""Names of variables that hold no key, but say how a machine or an account is set up."""

SHELL_COMMANDS = frozenset(
    (
        *(".", ":", "alias", "bg", "builtin", "cd", "command", "declare", "dirs", "disown", "eval"),
        *("exec", "exit", "export", "fg", "function", "hash", "jobs", "let", "local", "mapfile"),
        *("popd", "pushd", "readarray", "readonly", "set", "shift", "shopt", "source", "trap"),
        *("type", "typeset", "ulimit", "umask", "unalias", "unset", "wait", "[["),
    )
)
"""What a shell carries out itself; bash has more of it than other shells."""

NOT_FOUND = re.compile(
    r"([\w.+-]+): command not found|sh: (?:line )?\d+: ([\w.+-]+): not found"
    r"|make(?:\[\d+\])?: ([\w.+-]+): No such file"
)
NOT_STARTED = re.compile(r"No such file or directory: '([\w+-]+)'")
STARTING_CODE = re.compile(
    r"\b(subprocess|Popen|check_output|check_call|os\.(system|popen|exec\w*|spawn\w*))\b"
)
NOT_EXECUTED = re.compile(
    r"(?:sh: (?:line )?\d+|make(?:\[\d+\])?|env): ([\w./+-]+): Permission denied"
    r"|\[Errno 13\] Permission denied: '([^'\n]+)'"
)
STARTED_DENIED = re.compile(
    r"^PermissionError: \[Errno 13\] Permission denied: '"
    r"|\b(cannot|can't|could not|couldn't|unable to|failed to)\b.*permission denied",
    re.MULTILINE | re.IGNORECASE,
)
"""What programs in some languages, compilers and tools say that could not make a file."""

BY_PYTHON = "_execute_child"
"""The function of `subprocess` that raises if a program could not be started at all."""

NAMED_PATH = re.compile(r"\[Errno (?:2|13|30)\] [^:\n]+: '([^'\n]*)'")
READ_ONLY = "[Errno 30]"
DENIED = "[Errno 13]"
WRITING = re.compile(r"""['"][waxr]b?\+b?['"]|['"][wax][bt]?['"]|mkdir|makedirs|write_|touch\(""")
OPENING = re.compile(r"(?<![pP])open\(")
HOME_FOLDER = re.compile(r"""expanduser|Path\.home\(|['"]HOME['"]""")
SYSTEM_FOLDERS = ("/proc/", "/sys/", "/dev/", "/etc/", "/run/")

UNSCORED_HINT = (
    "A number whose name tells a failure is never maximised. If it is the objective, name it in"
    f' {SETTINGS_FILE}: metric, with direction = "minimize" and reference if less is better'
)
NETWORK_HINT = (
    "The sandbox has no network, so an evaluator that needs it declares that in problem.toml:"
    ' network = ["HOST"]'
)
SHARED_HINT = (
    "The sandbox has no sockets, so no Manager of multiprocessing; where Linux allows no"
    " namespaces, it has no shared memory either"
)
NO_MODES = "chmod has no effect"
BUILT_HINT = (
    f"{NO_MODES} under {{layer}}, so a file that a compiler or shutil.copy makes cannot be"
    " executed: copy it into one that os.open(path, os.O_CREAT | os.O_WRONLY, 0o755) makes; or"
    " choose --sandbox bubblewrap or container, as another user than root; or --sandbox process,"
    " under which programs can also read your files and use the network"
)
VARIABLE_HINT = (
    "The sandbox does not pass on environment variables such as {0}, unless problem.toml declares"
    ' them: keys = ["{0}"]'
)
SYSTEM_VARIABLE_HINT = (
    "The sandbox does not pass on environment variables such as {0}: have the evaluator do without,"
    ' as by os.environ.get("{0}", "a default")'
)
PROGRAM_HINT = (
    "If {} is a program, it is missing: install it, or name its folder as readable in"
    f" {SETTINGS_FILE}. If it is a function or an alias of a shell, define it in the script that"
    " uses it"
)
SHELL_HINT = (
    "{} is a command of a shell such as bash, not a program, and sh may lack it: start"
    ' ["bash", "-c", "..."], or the script with bash'
)
STARTED_HINT = (
    "What an evaluator starts that runs the candidate makes and removes files only in the temporary"
    " folder and in folders that the evaluator has made: start it with cwd=tempfile.mkdtemp(), or"
    " have its outputs there"
)
READ_ONLY_HINT = (
    "Only the copy of the problem's folder can be written to in the sandbox: use paths relative to"
    " that, or tempfile"
)
WORKING_FOLDER_HINT = (
    "{path} is in the problem's folder, but the working folder is the evaluator's: open it"
    ' as Path(__file__).resolve().{parent} / "{path}"'
)
HOME_HINT = "HOME is the scratch folder in the sandbox, which holds no files of yours"
OUTSIDE_HINT = "{} is outside of the problem's folder: copy it into the folder and change the path"
UNSHOWN_HINT = "{} {}, so it is not shown: copy it into the folder"
SYSTEM_HINT = "{} belongs to the system, and programs in the sandbox cannot use it"
EDITABLE_HINT = (
    "{} is installed in editable mode, and the problem's folder and the package are in each other,"
    " so the sandbox hides the package: move the problem out of it"
)
FILES_HINT = (
    "An evaluator sees the files of its folder that its code imports or names; declare others as"
    f" files in {SETTINGS_FILE}"
)


@dataclass(frozen=True, slots=True)
class Setup:
    """Where an evaluator runs.

    Attributes:
        source: Its text.
        layer: What confines it.
        processes: How many processes it may start.
        place: The folder that holds it; None if it is a command.
        folder: The problem's folder.
        shown: The files that it may read.
    """

    source: str
    layer: Layer
    processes: int
    place: Path | None = None
    folder: Path | None = None
    shown: Collection[Path] = ()


def setup_hint(error: str, log: str, setup: Setup) -> str:
    """A hint for an error that no program could avoid; empty for other errors.

    Args:
        error: The error, with the lines of the evaluator where it arose, or what the evaluator made
            of it.
        log: What the evaluator printed.
        setup: Where it runs.
    """
    said = f"{error}\n{log}"
    if process := refused_process(log):
        return process
    # A pool makes its semaphores before it starts a process.
    if not setup.processes and DENIED_SEMAPHORE.search(said) and POOLS.search(setup.source):
        return f"{PROCESS_REFUSED}, nor a pool or a lock of multiprocessing be made: {HINT}"
    if SHARED.search(said):
        return SHARED_HINT
    # Lines of the evaluator say what failed; without them, only its text can.
    has_lines = FRAME in error
    code = error if has_lines else setup.source
    is_network = NETWORK_CODE.search(said) or (NETWORK_IMPORT.search(code) and not has_lines)
    if NO_NETWORK.search(said) or (REFUSED in said and is_network):
        return NETWORK_HINT
    if name := _missing_variable(error, setup.source):
        is_of_system = SYSTEM_VARIABLE.fullmatch(name)
        return (SYSTEM_VARIABLE_HINT if is_of_system else VARIABLE_HINT).format(name)
    if name := _hidden_package(said, setup):
        return EDITABLE_HINT.format(name)
    if found := NO_MODULE.search(said):
        is_own = any((base / f"{found[1]}.py").exists() for base in _bases(setup))
        missing = f"If the evaluator needs {found[1]}, install it: costada prepare"
        return FILES_HINT if is_own else missing
    if name := _missing_program(said, code, setup):
        return (SHELL_HINT if name in SHELL_COMMANDS else PROGRAM_HINT).format(name)
    if _is_denied_to_started(error, log, setup):
        return STARTED_HINT
    return _execution_hint(said, error, code, setup) or _file_hint(error, setup)


def refused_process(log: str) -> str:
    """What a log says of the first process that was refused to an evaluator; empty if nothing."""
    said = (line for line in log.splitlines() if line.startswith(PROCESS_REFUSED))
    return next(said, "")[:MAX_HINT_CHARS]


def _bases(setup: Setup) -> list[Path]:
    """The evaluator's own folder, and the problem's around it."""
    return [base for base in (setup.place, setup.folder) if base is not None]


def _hidden_package(said: str, setup: Setup) -> str:
    """The editable package that could not be imported, as it may hold answers; empty if none."""
    if not setup.folder:
        return ""
    for each in own_interpreter().editable:
        name, path = re.escape(each.name), re.escape(each.path)
        is_named = re.search(rf"No module named '{name}['.]|denied: '{path}['/]", said)
        if is_named and not each.is_apart_from(setup.folder):
            return each.name
    return ""


def _missing_variable(error: str, source: str) -> str:
    """The environment variable that an error is about; empty if it is about none."""
    if (found := NO_KEY.search(error)) and ENVIRONMENT.search(error):
        return found[1]
    names = (name for name in VARIABLE.findall(source) if re.search(rf"\b{name}\b", error))
    return next(names, "")


def _missing_program(said: str, code: str, setup: Setup) -> str:
    """The program that could not be started as there is none; empty if that is not the error."""
    if found := NOT_FOUND.search(said):
        return found[1] or found[2] or found[3]
    for name in NOT_STARTED.findall(said):
        # First in a list of words, or in a text that is one command.
        call = rf"\[\s*['\"]{name}['\"]|(?:run|call|output|Popen)\(\s*f?['\"]{name}\b"
        if re.search(call, code) or (FRAME in code and STARTING_CODE.search(code)):
            return str(name)
    return ""


def _is_denied_to_started(error: str, log: str, setup: Setup) -> bool:
    """Whether a program that the evaluator started, and not itself, could not make a file."""
    starts = setup.layer not in UNCONFINED and STARTING_CODE.search(setup.source)
    said = f"{error}\n{log}"
    is_own = error.startswith("PermissionError") or BY_PYTHON in said
    return bool(starts and not is_own and STARTED_DENIED.search(said))


def _execution_hint(said: str, error: str, code: str, setup: Setup) -> str:
    """A hint for a file that may not be executed; empty for other errors."""
    found = NOT_EXECUTED.search(said)
    if not found or OPENING.search(error) or WRITING.search(error):
        return ""
    path = found[1] or found[2]
    if found[1] is None and not STARTING_CODE.search(code):
        return ""
    is_own = not os.path.isabs(path) and not any((base / path).exists() for base in _bases(setup))
    if is_own and not setup.layer.implementation.may_change_modes():
        return BUILT_HINT.format(layer=setup.layer.value)
    return ""


def _file_hint(error: str, setup: Setup) -> str:
    """A hint for a file that an evaluator cannot read or write; empty for other errors."""
    found = NAMED_PATH.search(error)
    if not found or setup.place is None or setup.folder is None:
        return ""
    path = found[1]
    if path.startswith(SYSTEM_FOLDERS):
        return SYSTEM_HINT.format(path)
    bases = [base for base in _bases(setup) if (base / path).exists()]
    for place in (base / path for base in bases if not os.path.isabs(path)):
        if reason := unshown_reason(place, setup.folder):
            return UNSHOWN_HINT.format(place, reason)
    if READ_ONLY in error or (DENIED in error and WRITING.search(error)):
        return READ_ONLY_HINT
    is_of_home = HOME_FOLDER.search(error) or (HOME_FOLDER.search(setup.source) and not bases)
    if is_of_home or path.startswith("~"):
        return f"{HOME_HINT}: copy the file into the problem's folder and change the path"
    if os.path.isabs(path):
        is_inside = Path(path).is_relative_to(setup.folder)
        return FILES_HINT if is_inside else OUTSIDE_HINT.format(path)
    if bases:
        if DENIED in error or not _is_shown(bases[0] / path, setup):
            return FILES_HINT
        level = [setup.place, *setup.place.parents].index(bases[0])
        parent = f"parents[{level}]" if level else "parent"
        return WORKING_FOLDER_HINT.format(path=path, parent=parent)
    above = [base / path for base in setup.folder.parents[:MAX_LEVELS] if (base / path).exists()]
    return OUTSIDE_HINT.format(above[0]) if above else ""


def _is_shown(path: Path, setup: Setup) -> bool:
    return any(file.is_relative_to(path) for file in setup.shown)
