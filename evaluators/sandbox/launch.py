"""How the process that candidates are forked from is started, for each layer."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import MEBIBYTE

SANDBOX_FOLDER = Path(__file__).parent
ZYGOTE_FILE = SANDBOX_FOLDER / "inside" / "zygote.py"
INTERPRETER_OPTIONS = ("-s", "-P", "-B", "-u", "-X", "utf8")
THREAD_VARIABLES = (
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
SCRATCH_NAME = "work"
INNER_HOME = "/tmp/costada"  # noqa: S108  (in a file system of the sandbox's own)
INNER_FILES_MB = 1024
"""Size of the file system that the candidates of a bubblewrap or container slot write to."""

SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/bin", "/sbin")
SYSTEM_PROGRAMS = ("/usr/local/bin", "/usr/bin", "/bin")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime")


@dataclass(frozen=True, slots=True)
class SlotKind:
    """What a slot is prepared for; candidates of one kind share slots.

    Attributes:
        layer: What holds the candidates; never AUTO.
        preload: Modules loaded before any candidate starts.
        folder: A folder that candidates may read; None for nothing but the libraries.
    """

    layer: Layer
    preload: tuple[str, ...]
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a slot.

    Attributes:
        command: Program and arguments.
        environment: All environment variables.
        scratch: Where candidates work, as they see it.
    """

    command: list[str]
    environment: dict[str, str]
    scratch: str


def launch(kind: SlotKind, home: Path, control_fd: int, info_fd: int) -> Launch:
    """Return how to start a slot of a kind.

    Args:
        kind: What the slot is for.
        home: Private folder of the slot, for layers without a file system of their own.
        control_fd: The slot's end of the socket that orders come over.
        info_fd: Where bubblewrap tells the number of the process that holds all others.

    Raises:
        FileNotFoundError: If the layer's program is not installed.
    """
    has_own_files = kind.layer in (Layer.BUBBLEWRAP, Layer.CONTAINER)
    inner_home = INNER_HOME if has_own_files else str(home)
    scratch = os.path.join(inner_home, SCRATCH_NAME)
    folders = [str(kind.folder)] if kind.folder else []
    settings = {
        "control_fd": control_fd,
        "scratch": scratch,
        "layer": kind.layer,
        "preload": kind.preload,
        "import_path": library_folders(),
        "programs": program_paths(),
        "readable": [*interpreter_folders(), *library_folders(), *folders],
    }
    command = [sys.executable, *INTERPRETER_OPTIONS, str(ZYGOTE_FILE), json.dumps(settings)]
    if kind.layer is Layer.BUBBLEWRAP:
        command = [*_bubblewrap(folders, info_fd), *command]
    environment = dict.fromkeys(THREAD_VARIABLES, "1")
    environment |= {"HOME": scratch, "TMPDIR": scratch, "PYTHONHASHSEED": "0"}
    return Launch(command, environment, scratch)


def library_folders() -> list[str]:
    """Return the folders of installed packages, so that candidates see what we see."""
    is_library = ("site-packages", "dist-packages")
    return [path for path in sys.path if path.endswith(is_library) and os.path.isdir(path)]


def interpreter_folders() -> list[str]:
    """Return where the interpreter keeps its standard library."""
    prefixes = dict.fromkeys((sys.prefix, sys.base_prefix, sys.exec_prefix))
    found = [os.path.join(prefix, name) for prefix in prefixes for name in ("lib", "lib64")]
    return [path for path in found if os.path.isdir(path)]


def program_paths() -> list[str]:
    """Return where programs lie, the interpreter's own first, and what it needs to start."""
    prefixes = dict.fromkeys((sys.prefix, sys.base_prefix))
    own = [os.path.join(prefix, name) for prefix in prefixes for name in ("bin", "pyvenv.cfg")]
    return [path for path in (*own, *SYSTEM_PROGRAMS) if os.path.exists(path)]


def _bubblewrap(folders: list[str], info_fd: int) -> list[str]:
    program = which("bwrap")
    if program is None:
        raise FileNotFoundError("bwrap is not installed")
    private = ["--proc", "/proc", "--dev", "/dev", "--size", str(INNER_FILES_MB * MEBIBYTE)]
    private += ["--tmpfs", "/tmp", "--dir", INNER_HOME, "--chdir", INNER_HOME]  # noqa: S108
    alone = ["--unshare-all", "--unshare-user", "--cap-drop", "ALL", "--hostname", "sandbox"]
    mounts = [part for path in SYSTEM_FOLDERS for part in _system_mount(path)]
    mounts += [part for path in SYSTEM_FILES for part in ("--ro-bind-try", path, path)]
    visible = [part for path in _visible(folders) for part in ("--ro-bind-try", path, path)]
    return [program, *alone, *mounts, *private, *visible, "--info-fd", str(info_fd), "--"]


def _system_mount(path: str) -> list[str]:
    if os.path.islink(path):
        return ["--symlink", os.readlink(path), path]
    return ["--ro-bind-try", path, path]


def _visible(folders: list[str]) -> list[str]:
    """Return what must be seen beside the system: the interpreter, packages, our own inside."""
    paths = [
        *program_paths(),
        *interpreter_folders(),
        *library_folders(),
        str(SANDBOX_FOLDER),
        *folders,
    ]
    return [path for path in dict.fromkeys(paths) if not path.startswith("/usr/")]
