"""How the process that candidates are forked from is started, for each layer."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

from costada.evaluators.sandbox.container import Inside, run_command
from costada.evaluators.sandbox.door import INNER_DOOR, SOCKET_NAME
from costada.evaluators.sandbox.forking import can_fork
from costada.evaluators.sandbox.layers import Layer, is_late
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits

SANDBOX_FOLDER = Path(__file__).parent
PACKAGE_FOLDER = Path(__file__).parents[2]
"""Hidden from candidates: the benchmarks hold what their answers are compared with."""

ZYGOTE_FILE = SANDBOX_FOLDER / "inside" / "zygote.py"
INTERPRETER_OPTIONS = ("-s", "-P", "-B", "-u", "-X", "utf8")
THREAD_VARIABLES = (
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
WITHOUT_WALLS = (Layer.PROCESS, Layer.NONE)
SCRATCH_NAME = "work"
INNER_HOME = "/tmp/costada"  # noqa: S108  (in a file system of the sandbox's own)
SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/bin", "/sbin")
SYSTEM_PROGRAMS = ("/usr/local/bin", "/usr/bin", "/bin")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime")


@dataclass(frozen=True, slots=True)
class SlotKind:
    """What a slot is prepared for; candidates of one kind share slots.

    Attributes:
        layer: What holds the candidates; never AUTO.
        preload: Modules loaded before any candidate starts, or before the first that names them.
        files: What candidates may read beside the libraries; see `SeenFile`.
        is_single_use: Whether each candidate gets an interpreter of its own, started ahead, and
            not a fork of a warm one.
        files_mb: Size of the file system that candidates write to, in MiB, where the slot can have
            one of its own; 0 for none where it need not.
    """

    layer: Layer
    preload: tuple[str, ...]
    files: tuple["SeenFile", ...] = ()
    is_single_use: bool = field(default_factory=lambda: not can_fork())
    files_mb: int = Limits().files_mb

    @property
    def loaded_late(self) -> tuple[str, ...]:
        """Modules that a slot loads when the first candidate names them."""
        return () if self.is_single_use else tuple(filter(is_late, self.preload))

    @property
    def is_guarded(self) -> bool:
        """Whether our own process sees that nothing outlives a slot; see `inside/guard.py`."""
        return sys.platform.startswith("linux") and not self.has_own_files

    @property
    def has_own_files(self) -> bool:
        """Whether candidates write to a file system of the slot's own."""
        return self.layer in (Layer.BUBBLEWRAP, Layer.CONTAINER)


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file that candidates may read.

    Attributes:
        path: Where it lies.
        folder: The outermost folder around it that may be listed.
        identity: Device and number: a new one at the same place is another.
    """

    path: str
    folder: str
    identity: tuple[int, int]

    @property
    def folders(self) -> list[str]:
        """The folders around it that may be listed."""
        around = map(str, Path(self.path).parents)
        return [path for path in around if f"{path}/".startswith(f"{self.folder}/")]


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a slot.

    Attributes:
        command: Program and arguments.
        environment: All environment variables of the program.
        scratch: Where candidates work, as they see it.
    """

    command: list[str]
    environment: dict[str, str]
    scratch: str


def launch(kind: SlotKind, home: Path | None, control_fd: int, info_fd: int) -> Launch:
    """Return how to start a slot of a kind.

    Args:
        kind: What the slot is for.
        home: Private folder of the slot; bubblewrap needs none.
        control_fd: The slot's end of the socket that orders come over, unless it is a container.
        info_fd: Where bubblewrap tells the number of the process that holds all others.

    Raises:
        FileNotFoundError: If the layer's program is not installed.
        RuntimeError: If the layer needs a warm process that forks, and this is not to be, or if
            no engine for containers works.
    """
    if kind.is_single_use and kind.layer not in WITHOUT_WALLS:
        raise RuntimeError("it needs a Linux kernel with pidfd_open")
    scratch = os.path.join(INNER_HOME if kind.has_own_files else str(home), SCRATCH_NAME)
    files = [file.path for file in kind.files]
    environment = dict.fromkeys(THREAD_VARIABLES, "1")
    environment |= {"HOME": scratch, "TMPDIR": scratch, "PYTHONHASHSEED": "0"}
    settings = _settings(kind, scratch) | {"environment": environment}
    if kind.layer is Layer.CONTAINER and home is not None:
        settings |= {"control_path": os.path.join(INNER_DOOR, SOCKET_NAME)}
        mounts = [*SYSTEM_FOLDERS, *SYSTEM_FILES, *_visible(files)]
        runner = run_command(home, Inside(INNER_HOME, kind.files_mb, mounts, environment))
        return Launch([*runner, *_interpreter(settings)], dict(os.environ), scratch)
    command = _interpreter(settings | {"control_fd": control_fd})
    if kind.layer is Layer.BUBBLEWRAP:
        command = [*_bubblewrap(files, info_fd, kind.files_mb), *command]
    return Launch(command, environment, scratch)


def _interpreter(settings: Mapping[str, object]) -> list[str]:
    # Started as `../bin/python`, it names itself by folders that the candidate's side lacks.
    program = os.path.normpath(sys.executable)
    return [program, *INTERPRETER_OPTIONS, str(ZYGOTE_FILE), json.dumps(settings)]


def _settings(kind: SlotKind, scratch: str) -> dict[str, object]:
    """Return what the process is told; see `inside/zygote.py`."""
    return {
        "role": "nursery" if kind.is_single_use else "ward",
        "is_guarded": kind.is_guarded,
        "has_namespace": kind.layer is not Layer.NONE and not kind.is_single_use,
        "scratch": scratch,
        "files_mb": 0 if kind.has_own_files or kind.layer is Layer.NONE else kind.files_mb,
        "layer": kind.layer,
        "preload": [name for name in kind.preload if name not in kind.loaded_late],
        "import_path": library_folders(),
        "programs": program_paths(),
        "hidden": str(PACKAGE_FOLDER),
        "readable": [*interpreter_folders(), *library_folders(), *(f.path for f in kind.files)],
        "listed": list(dict.fromkeys(path for file in kind.files for path in file.folders)),
    }


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


def _bubblewrap(files: list[str], info_fd: int, files_mb: int) -> list[str]:
    program = which("bwrap")
    if program is None:
        raise FileNotFoundError("bwrap is not installed")
    private = ["--proc", "/proc", "--dev", "/dev", "--size", str(files_mb * MEBIBYTE)]
    private += ["--tmpfs", "/tmp", "--dir", INNER_HOME, "--chdir", INNER_HOME]  # noqa: S108
    alone = ["--unshare-all", "--unshare-user", "--cap-drop", "ALL", "--hostname", "sandbox"]
    mounts = [part for path in SYSTEM_FOLDERS for part in _system_mount(path)]
    mounts += [part for path in SYSTEM_FILES for part in ("--ro-bind-try", path, path)]
    visible = [part for path in _visible(files) for part in ("--ro-bind-try", path, path)]
    return [program, *alone, *mounts, *private, *visible, "--info-fd", str(info_fd), "--"]


def _system_mount(path: str) -> list[str]:
    if os.path.islink(path):
        return ["--symlink", os.readlink(path), path]
    return ["--ro-bind-try", path, path]


def _visible(files: list[str]) -> list[str]:
    """Return what must be seen beside the system: the interpreter, packages, our own inside."""
    paths = [
        *program_paths(),
        *interpreter_folders(),
        *library_folders(),
        str(SANDBOX_FOLDER),
        *files,
    ]
    return [path for path in dict.fromkeys(paths) if not path.startswith("/usr/")]
