"""The layers of the sandbox, and the command that starts a server process in each of them."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from shutil import which
from typing import NamedTuple

from costada.evaluators.sandbox.container import INNER_FOLDER, INNER_SOCKET, run_command
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
PRELOAD = ("numpy", "scipy.optimize")
"""Modules that most candidates import; importing them in a candidate costs no time."""

LATE = "scipy"
"""Loaded before the first candidate that names it: a process without it forks in half the time."""

SANDBOX_FOLDER = Path(__file__).parent
PACKAGE_FOLDER = Path(__file__).parents[2]
"""Hidden from candidates: the benchmarks hold what their answers are compared with."""

SERVER_FILE = SANDBOX_FOLDER / "inside" / "server_main.py"
INTERPRETER_OPTIONS = ("-s", "-P", "-B", "-u", "-X", "utf8")
THREAD_VARIABLES = (
    *("MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    "VECLIB_MAXIMUM_THREADS",
)
SCRATCH_NAME = "work"
SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/bin", "/sbin")
SYSTEM_PROGRAMS = ("/usr/local/bin", "/usr/bin", "/bin")
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
class SlotKind:
    """What a slot is prepared for; candidates of one kind share slots.

    Attributes:
        layer: What confines the candidates; never AUTO.
        preload: Modules loaded before any candidate starts, or before the first that names them.
        is_single_use: Whether each candidate gets an interpreter of its own, started ahead,
            instead of a fork of a warm one.
        files_mb: Size of the slot's private file system in MiB, where it can have one; 0: none
            unless the layer needs it.
    """

    layer: Layer
    preload: tuple[str, ...]
    files: tuple[ReadableFile, ...] = ()
    is_single_use: bool = field(default_factory=lambda: not can_fork())
    files_mb: int = Limits().files_mb

    @property
    def loaded_late(self) -> tuple[str, ...]:
        """Modules that a slot loads when the first candidate names their package."""
        if self.is_single_use:
            return ()
        return tuple(name for name in self.preload if name.partition(".")[0] == LATE)

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor sees that nothing outlives the slot; see `process_tree`."""
        return sys.platform.startswith("linux") and not self.has_filesystem

    @property
    def has_filesystem(self) -> bool:
        """Whether the layer itself gives the slot a private file system."""
        return self.layer in (Layer.BUBBLEWRAP, Layer.CONTAINER)


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
    files = [file.path for file in kind.files]
    environment = dict.fromkeys(THREAD_VARIABLES, "1")
    environment |= {"HOME": scratch, "TMPDIR": scratch, "PYTHONHASHSEED": "0"}
    settings = _settings(kind, scratch) | {"environment": environment}
    if kind.layer is Layer.CONTAINER and folder is not None:
        mounts = [*SYSTEM_FOLDERS, *SYSTEM_FILES, *_mounted(files)]
        runner = run_command(folder, mounts, kind.files_mb, environment)
        command = [*runner, *_interpreter(settings | {"control_path": INNER_SOCKET})]
        return Launch(command, dict(os.environ), scratch)
    command = _interpreter(settings | {"control_fd": control_fd})
    if kind.layer is Layer.BUBBLEWRAP:
        command = [*_bubblewrap(files, info_fd, kind.files_mb), *command]
    return Launch(command, environment, scratch)


def _interpreter(settings: Mapping[str, object]) -> list[str]:
    # Started as `../bin/python`, it would name itself by folders that the sandbox lacks.
    program = os.path.normpath(sys.executable)
    return [program, *INTERPRETER_OPTIONS, str(SERVER_FILE), json.dumps(settings)]


def _settings(kind: SlotKind, scratch: str) -> dict[str, object]:
    """The settings that `inside/server_main.py` reads."""
    return {
        "role": "spawn_server" if kind.is_single_use else "fork_server",
        "is_supervised": kind.is_supervised,
        "has_namespace": kind.layer is not Layer.NONE and not kind.is_single_use,
        "scratch": scratch,
        "makes_folder": not kind.has_filesystem,
        "files_mb": 0 if kind.has_filesystem or kind.layer is Layer.NONE else kind.files_mb,
        "layer": kind.layer,
        "preload": [name for name in kind.preload if name not in kind.loaded_late],
        "import_path": _library_folders(),
        "programs": _program_paths(),
        "hidden": str(PACKAGE_FOLDER),
        "readable": [*_interpreter_folders(), *_library_folders(), *(f.path for f in kind.files)],
        "listable": list(dict.fromkeys(path for file in kind.files for path in file.folders)),
    }


def _library_folders() -> list[str]:
    """The folders of installed packages: candidates import what this process can import."""
    is_library = ("site-packages", "dist-packages")
    return [path for path in sys.path if path.endswith(is_library) and os.path.isdir(path)]


def _interpreter_folders() -> list[str]:
    """The folders of the standard library."""
    prefixes = dict.fromkeys((sys.prefix, sys.base_prefix, sys.exec_prefix))
    found = [os.path.join(prefix, name) for prefix in prefixes for name in ("lib", "lib64")]
    return [path for path in found if os.path.isdir(path)]


def _program_paths() -> list[str]:
    """The folders of programs, the interpreter's own first, and what it needs to start."""
    prefixes = dict.fromkeys((sys.prefix, sys.base_prefix))
    own = [os.path.join(prefix, name) for prefix in prefixes for name in ("bin", "pyvenv.cfg")]
    return [path for path in (*own, *SYSTEM_PROGRAMS) if os.path.exists(path)]


def _bubblewrap(files: list[str], info_fd: int, files_mb: int) -> list[str]:
    program = which("bwrap")
    if program is None:
        raise FileNotFoundError("bwrap is not installed")
    command = [program, "--unshare-all", "--unshare-user", "--cap-drop", "ALL"]
    command += ["--hostname", "sandbox"]
    for path in SYSTEM_FOLDERS:
        is_link = os.path.islink(path)
        command += ["--symlink", os.readlink(path), path] if is_link else _bound(path)
    for path in SYSTEM_FILES:
        command += _bound(path)
    command += ["--proc", "/proc", "--dev", "/dev", "--size", str(files_mb * MEBIBYTE)]
    command += ["--tmpfs", "/tmp", "--dir", INNER_FOLDER, "--chdir", INNER_FOLDER]  # noqa: S108
    for path in _mounted(files):
        command += _bound(path)
    return [*command, "--info-fd", str(info_fd), "--"]


def _bound(path: str) -> list[str]:
    return ["--ro-bind-try", path, path]


def _mounted(files: list[str]) -> list[str]:
    """What must be visible beside the system: the interpreter, packages, this folder, files."""
    installed = [*_program_paths(), *_interpreter_folders(), *_library_folders()]
    paths = dict.fromkeys([*installed, str(SANDBOX_FOLDER), *files])
    return [path for path in paths if not path.startswith("/usr/")]
