"""The layers of the sandbox, and the command that starts a server process in each of them."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache
from glob import glob, has_magic
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import NamedTuple

from costada.evaluators.sandbox.container import INNER_FOLDER, INNER_SOCKET, run_command
from costada.evaluators.sandbox.helper_environment import helper_environment
from costada.evaluators.sandbox.inside.guards import GUARDS
from costada.evaluators.sandbox.interpreter import Interpreter, own_interpreter
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits


class Layer(StrEnum):
    """What confines a candidate's process.

    AUTO stands for the first of BUBBLEWRAP, LANDLOCK and PROCESS that passes its probe.
    """

    AUTO = "auto"
    PROCESS = "process"
    LANDLOCK = "landlock"
    BUBBLEWRAP = "bubblewrap"
    CONTAINER = "container"
    NONE = "none"


UNCONFINED = (Layer.PROCESS, Layer.NONE)
WITH_FILESYSTEM = (Layer.BUBBLEWRAP, Layer.CONTAINER)
PRELOAD = ("numpy", "scipy.optimize")
"""Modules that most candidates import; importing them in a candidate costs no time."""

LATE = "scipy"
"""Loaded before the first candidate that names it: a process without it forks in half the time."""

SANDBOX_FOLDER = Path(__file__).parent
PACKAGE_FOLDER = Path(__file__).parents[2]
"""Hidden from candidates: the benchmarks hold what their answers are compared with."""

INSIDE_FILES = (SANDBOX_FOLDER, PACKAGE_FOLDER / "values" / "provider_error.py")
"""What the server and the processes that it forks import of the package."""

SERVER_FILE = SANDBOX_FOLDER / "inside" / "server_main.py"
INTERPRETER_OPTIONS = ("-s", "-P", "-B", "-u", "-X", "utf8")
WITHOUT_SITE = "-S"
"""Has an interpreter run no code of its packages when it starts, such as that of `.pth` files."""

THREAD_VARIABLES = (
    *("MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    "VECLIB_MAXIMUM_THREADS",
)
SCRATCH_NAME = "work"
MOUNTING = ("CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE")
"""What the server needs, in namespaces of its own, to mount an overlay; candidates lack it."""

SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/bin", "/sbin")
TOOLS = (
    *("/usr/include", "/usr/libexec", "/usr/share", "/usr/local/include", "/usr/local/share"),
    *("/usr/local/go", "/etc/alternatives", "/etc/java*", "/etc/R", "/etc/julia"),
    "/etc/ssl/openssl.cnf",
)
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime")


@cache
def can_fork() -> bool:
    """Whether candidates can be forked from a warm process here, watched and killed.

    Not on macOS, whose libraries do not survive a fork, nor without pidfds, as in gVisor.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class ReadableFile:
    """A file that candidates may read."""

    path: str
    folder: str  # the outermost folder around it that may be listed
    identity: tuple[int, int]  # device and inode: a replaced file makes another kind of slot

    @property
    def folders(self) -> list[str]:
        """The folders around it that may be listed."""
        around = map(str, Path(self.path).parents)
        return [path for path in around if f"{path}/".startswith(f"{self.folder}/")]


@dataclass(frozen=True, slots=True)
class Original:
    """A folder of which each candidate gets a clean copy as its working folder.

    It holds files, folders and links that lead to nothing outside of it, alone.
    """

    path: str
    num_files: int  # files, folders and links in it
    megabytes: int  # size of all files
    identity: tuple[int, int]  # device and inode: a replaced folder makes another kind of slot


@dataclass(frozen=True, slots=True)
class SlotKind:
    """What a slot is prepared for; candidates of one kind share slots.

    Attributes:
        layer: What confines the candidates; never AUTO.
        preload: Modules loaded before any candidate starts, or before the first that names them.
        is_single_use: Whether each candidate gets an interpreter of its own, started ahead,
            instead of a fork of a warm one.
        files_mb: Size of the slot's private file system in MiB, where it can have one; 0: none
            unless the layer needs it.
        interpreter: What runs the candidates; None: the interpreter of this process.
        original: What the working folder of each candidate is a copy of; None: it is empty.
        readable: Files and folders beside the system's that candidates may read; programs are
            looked for in the folders, and in a `bin` in them.
    """

    layer: Layer
    preload: tuple[str, ...]
    files: tuple[ReadableFile, ...] = ()
    is_single_use: bool = field(default_factory=lambda: not can_fork())
    files_mb: int = Limits().files_mb
    interpreter: Interpreter | None = None
    original: Original | None = None
    readable: tuple[str, ...] = ()

    @property
    def programs(self) -> list[str]:
        """The folders in which programs are looked for, beside the interpreter's."""
        places = [folder for path in self.readable for folder in (path, os.path.join(path, "bin"))]
        return [path for path in places if os.path.isdir(path)]

    @property
    def preloaded(self) -> tuple[str, ...]:
        """Modules that the server loads, which is confined by bubblewrap and by containers alone.

        The packages of another environment may be somebody else's, so none of their code runs
        before the confinement is in force.
        """
        is_own = self.interpreter is None or self.layer in UNCONFINED
        return self.preload if is_own or self.has_filesystem else ()

    @property
    def loaded_late(self) -> tuple[str, ...]:
        """Modules that a slot loads when the first candidate names their package."""
        if self.is_single_use:
            return ()
        return tuple(name for name in self.preloaded if name.partition(".")[0] == LATE)

    @property
    def room_mb(self) -> int:
        """Size of the file system where copies of the original have room beside the files."""
        return self.files_mb + (self.original.megabytes if self.original else 0)

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor sees that nothing outlives the slot; see `process_tree`."""
        return sys.platform.startswith("linux") and not self.has_filesystem

    @property
    def has_filesystem(self) -> bool:
        """Whether the layer itself gives the slot a private file system."""
        return self.layer in WITH_FILESYSTEM


def may_change_modes(layer: Layer) -> bool:
    """Whether `chmod` has an effect for programs that a program in a layer starts."""
    # Devices and entries of /proc belong to root, and their modes hold for all processes.
    return layer in UNCONFINED or (layer in WITH_FILESYSTEM and os.geteuid() != 0)


def readable_paths(patterns: Sequence[str]) -> tuple[str, ...]:
    """What absolute paths, and patterns of such, lead to; `~` stands for the home folder.

    A pattern may lead to nothing: a tool chain need not be at the same place on every machine.

    Raises:
        ValueError: If one is relative, or a path leads to nothing.
    """
    found: list[str] = []
    for pattern in patterns:
        path = os.path.expanduser(pattern)
        there = sorted(glob(path))
        if not os.path.isabs(path) or not (there or has_magic(path)):
            raise ValueError(
                f"readable has {pattern!r}; expected the absolute path of a file or folder that is"
                " there, or a pattern of such"
            )
        found += map(os.path.realpath, there)
    return tuple(dict.fromkeys(found))


@cache
def tools() -> tuple[str, ...]:
    """What the system's compilers and interpreters read beside its libraries."""
    return tuple(path for pattern in TOOLS for path in sorted(glob(pattern)))


class Launch(NamedTuple):
    """How to start a slot's server."""

    command: list[str]
    environment: dict[str, str]  # all variables
    scratch: str  # the working folder of candidates, as they see it


def launch(kind: SlotKind, folder: Path | None, control_fd: int, info_fd: int) -> Launch:
    """How to start the server of a slot in its private folder; bubblewrap needs none.

    Args:
        kind: What the slot is for.
        folder: Its private folder.
        control_fd: The server's end of the control socket; a container uses its own socket.
        info_fd: Where bubblewrap reports the process that holds all others.

    Raises:
        FileNotFoundError: If the layer's program is not installed.
        RuntimeError: If the layer needs a warm process that forks, and this is not to be, or if
            no container engine works.
    """
    if kind.is_single_use and kind.layer not in UNCONFINED:
        raise RuntimeError("it needs a Linux kernel with pidfd_open")
    scratch = os.path.join(INNER_FOLDER if kind.has_filesystem else str(folder), SCRATCH_NAME)
    python = kind.interpreter or own_interpreter()
    originals = [kind.original.path] if kind.original else []
    mounted = _mounted(
        python, [*(file.path for file in kind.files), *originals, *kind.readable, *tools()]
    )
    guards = _guards()
    mounted += [
        os.path.dirname(path) if is_package else path for path, is_package in guards.values()
    ]
    environment = dict.fromkeys(THREAD_VARIABLES, "1")
    environment |= {"HOME": scratch, "TMPDIR": scratch, "PYTHONHASHSEED": "0"}
    settings = _settings(kind, python, scratch) | {"environment": environment}
    if kind.layer is Layer.CONTAINER and folder is not None:
        mounts = [*SYSTEM_FOLDERS, *SYSTEM_FILES, *mounted]
        runner = run_command(folder, mounts, kind.room_mb, environment)
        command = [*runner, *_started(python, settings | {"control_path": INNER_SOCKET})]
        return Launch(command, helper_environment(), scratch)
    command = _started(python, settings | {"control_fd": control_fd})
    if kind.layer is Layer.BUBBLEWRAP:
        command = [*_bubblewrap(kind, mounted, info_fd), *command]
    return Launch(command, environment, scratch)


def confined_build(
    command: Sequence[str],
    folder: Path,
    readable: Sequence[str],
    writable: Sequence[str],
    environment: Mapping[str, str],
) -> list[str]:
    """The command that runs an installer, which may build packages, confined.

    Args:
        command: The installer; its first word is the path of a program.
        folder: Its working folder, where it may write too.
        readable: What it may read, and execute, beside the system.
        writable: Further folders that it may write to.
        environment: All of its variables.
    """
    settings = {
        "role": "build",
        "command": command,
        "folder": str(folder),
        "readable": [*SYSTEM_FOLDERS, *tools(), *readable],
        "writable": [str(folder), *writable],
        "environment": dict(environment),
        "guards": {name: path for name, (path, _) in _guards().items()},
    }
    return _started(own_interpreter(), settings)


def _started(python: Interpreter, settings: Mapping[str, object]) -> list[str]:
    is_own = python.program == own_interpreter().program
    options = INTERPRETER_OPTIONS if is_own else (*INTERPRETER_OPTIONS, WITHOUT_SITE)
    return [python.program, *options, str(SERVER_FILE), json.dumps(settings)]


@cache
def _guards() -> dict[str, tuple[str, bool]]:
    """The file of each package that the sandbox imports, and whether it is one of several."""
    found = {name: find_spec(name) for name in GUARDS}
    return {
        name: (str(spec.origin), spec.submodule_search_locations is not None)
        for name, spec in found.items()
        if spec is not None
    }


def _settings(kind: SlotKind, python: Interpreter, scratch: str) -> dict[str, object]:
    """The settings that `inside/server_main.py` reads."""
    # An engine may run containers in a virtual machine, where files have other identities.
    is_same_system = kind.layer is not Layer.CONTAINER
    return {
        "role": "spawn_server" if kind.is_single_use else "fork_server",
        "is_supervised": kind.is_supervised,
        "has_namespace": kind.layer is not Layer.NONE and not kind.is_single_use,
        "scratch": scratch,
        "makes_folder": not kind.has_filesystem,
        "files_mb": 0 if kind.has_filesystem or kind.layer is Layer.NONE else kind.room_mb,
        "original": kind.original and {**asdict(kind.original), "upper_mb": kind.files_mb},
        "layer": kind.layer,
        "preload": [name for name in kind.preloaded if name not in kind.loaded_late],
        "import_path": python.libraries,
        "guards": {name: path for name, (path, _) in _guards().items()},
        "prefix": python.prefixes[0],
        "programs": [*kind.programs, *python.program_paths],
        "tools": tools(),
        "owns_files": may_change_modes(kind.layer),
        "hidden": str(PACKAGE_FOLDER),
        "readable": [
            *(*python.standard_folders, *python.libraries, *kind.readable),
            *(file.path for file in kind.files if not is_same_system),
        ],
        "files": [(file.path, *file.identity) for file in kind.files if is_same_system],
        "listable": list(dict.fromkeys(path for file in kind.files for path in file.folders)),
    }


def _bubblewrap(kind: SlotKind, mounted: list[str], info_fd: int) -> list[str]:
    program = which("bwrap")
    if program is None:
        raise FileNotFoundError("bwrap is not installed: apt-get install bubblewrap")
    command = [program, "--unshare-all", "--unshare-user", "--cap-drop", "ALL"]
    for capability in MOUNTING if kind.original else ():
        command += ["--cap-add", capability]
    command += ["--hostname", "sandbox"]
    for path in SYSTEM_FOLDERS:
        is_link = os.path.islink(path)
        command += ["--symlink", os.readlink(path), path] if is_link else _bound(path)
    for path in SYSTEM_FILES:
        command += _bound(path)
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108
    command += ["--size", str(kind.room_mb * MEBIBYTE), "--tmpfs", INNER_FOLDER]
    for path in mounted:
        command += _bound(path)
    command += ["--remount-ro", "/tmp", "--chdir", INNER_FOLDER]  # noqa: S108
    return [*command, "--info-fd", str(info_fd), "--"]


def _bound(path: str) -> list[str]:
    return ["--ro-bind-try", path, path]


def _mounted(python: Interpreter, files: list[str]) -> list[str]:
    """What must be visible beside the system: the interpreter, packages, this folder, files."""
    installed = [*python.program_paths, *python.standard_folders, *python.libraries]
    paths = dict.fromkeys([*installed, *map(str, INSIDE_FILES), *files])
    return [path for path in paths if not path.startswith("/usr/")]
