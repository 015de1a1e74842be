"""The container layer: Docker or Podman around a slot's server.

The image is empty and made on the spot: the container sees the interpreter and the packages of this
machine, so nothing is downloaded and the versions agree. Descriptors cannot be passed into a
container, so orders come through a socket in a folder that both sides see; that works only where
the engine runs on this machine and under its kernel.
"""

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import which
from time import monotonic

from costada.evaluators.sandbox.helper_environment import helper_environment
from costada.evaluators.sandbox.launch import SYSTEM_FILES, SYSTEM_FOLDERS
from costada.evaluators.sandbox.layers.protocol import INNER_FOLDER, SandboxLayer
from costada.evaluators.sandbox.limits import MEBIBYTE
from costada.evaluators.sandbox.opened import NOTHING, Opened

IMAGE = "costada-empty:1"
EMPTY_ARCHIVE = bytes(10240)  # a tar file without entries
MAX_PROCESSES = 4096
MEMORY_SHARE = 0.75
ENGINE_SECONDS = 30.0
CONNECT_SECONDS = 60.0
ACCEPT_SECONDS = 0.1
SOCKET_FOLDER = "socket"
INNER_SOCKET_FOLDER = "/tmp/costada-socket"  # noqa: S108  (in the container)
INNER_SOCKET = f"{INNER_SOCKET_FOLDER}/control"
PROXY_VARIABLES = ("ALL_PROXY", "FTP_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
"""Engines set these in a container if they are configured to, user names and all."""

CONFINEMENT = (
    *("--ipc", "none", "--hostname", "sandbox"),
    *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    *("--security-opt", "label=disable", "--pids-limit", str(MAX_PROCESSES)),
    *("--tmpfs", "/dev/shm:rw,size=4k,mode=0555"),  # noqa: S108  (of the container)
)
"""Without label=disable, SELinux hides all of this machine's files, the interpreter too."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that runs containers."""

    program: str
    query: tuple[str, ...]  # arguments that print its kernel, and whether it runs without root
    options: tuple[str, ...] = ()  # options that only this engine needs


ENGINES = (
    Engine("docker", ("info", "--format", "{{.KernelVersion}} {{.SecurityOptions}}")),
    Engine(
        "podman",
        ("info", "--format", "{{.Host.Kernel}} {{if .Host.Security.Rootless}}rootless{{end}}"),
        ("--http-proxy=false", "--read-only-tmpfs=false"),
    ),
)


class Container(SandboxLayer):
    """A container of its own for each slot, with Landlock and seccomp in it."""

    strength = 3
    is_automatic = False  # starting engines unasked would surprise, and an image is made
    has_filesystem = True
    is_this_system = False  # an engine may run containers in a virtual machine

    @classmethod
    def may_change_modes(cls) -> bool:
        """For users other than root, whose files are all that they could change."""
        return os.geteuid() != 0

    def _launch(self) -> None:
        """Start the server in a container; it connects over a socket in the slot's folder.

        The engine puts its processes in control groups of its own.
        """
        self.path.mkdir(mode=0o700)
        mounts = [*SYSTEM_FOLDERS, *SYSTEM_FILES, *self._mounted]
        room_mb, opened = self.kind.room_mb, self.kind.opened
        runner = run_command(self.path, mounts, room_mb, self._environment, opened)
        command = [*runner, *self._server_command(control_path=INNER_SOCKET)]
        with closing(ContainerSocket(self.path)) as listener:
            self._start(command, helper_environment(), [])
            if self.process and (socket := listener.accept(self.process, CONNECT_SECONDS)):
                self.control.close()
                self.control = socket

    def settle(self) -> None:
        """Remove the slot's folder: the socket was all that it held, and it is connected."""
        super().settle()
        self._remove_folder()

    def kill(self) -> None:
        """Kill the engine's client, and have the engine remove the container."""
        super().kill()
        if self.process is not None:
            engine, _ = local_engine()
            _ask(engine, "rm", "--force", self.path.name)


def run_command(
    folder: Path,
    mounts: Sequence[str],
    files_mb: int,
    environment: Mapping[str, str],
    opened: Opened = NOTHING,
) -> list[str]:
    """The command that runs the command appended to it in a container; makes the image.

    The container is named after the slot's folder; it sees `mounts` of this machine, read-only, and
    has what is `opened`.

    Raises:
        FileNotFoundError: If no engine is installed.
        RuntimeError: If none works, or only on another machine, with the reasons.
    """
    engine, is_rootless = local_engine()
    if _ask(engine, "image", "inspect", IMAGE).returncode != 0:
        made = _ask(engine, "import", "-", IMAGE, sent=EMPTY_ARCHIVE)
        if made.returncode != 0:
            raise RuntimeError(f"{engine.program} makes no image: {_last_line(made.stderr)}")
    memory = int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * MEMORY_SHARE)
    given = set(mounts)
    outermost = [
        path
        for path in dict.fromkeys(mounts)
        if os.path.exists(path) and not given & {str(parent) for parent in Path(path).parents}
    ]
    cleared = dict.fromkeys((*PROXY_VARIABLES, *map(str.lower, PROXY_VARIABLES)), "")
    size = files_mb * MEBIBYTE
    command = [engine.program, "run", "--rm", "--pull", "never", "--name", folder.name]
    command += ["--stop-signal", "KILL"]
    network = "bridge" if opened.has_network else "none"
    command += ["--network", network, *CONFINEMENT, "--memory", str(memory)]
    if not is_rootless:  # otherwise root in the container is this user already
        command += ["--user", f"{os.getuid()}:{os.getgid()}"]
    for path in opened.devices:
        command += ["--device", path]
    if opened.engine_socket:
        outermost.append(opened.engine_socket)
        command += ["--group-add", str(os.stat(opened.engine_socket).st_gid)]
    command += [*engine.options, "--tmpfs"]
    command += [f"{INNER_FOLDER}:rw,nosuid,nodev,exec,size={size},mode=1777"]
    places = {str(folder / SOCKET_FOLDER): INNER_SOCKET_FOLDER} | {path: path for path in outermost}
    for source, target in places.items():
        command += ["--mount", f"type=bind,source={source},target={target},readonly"]
    for name, value in {**cleared, **environment}.items():
        command += ["--env", f"{name}={value}"]
    return [*command, "--workdir", INNER_FOLDER, IMAGE]


@cache
def local_engine() -> tuple[Engine, bool]:
    """The first engine that runs on this machine, and whether it does so without root.

    Raises:
        FileNotFoundError: If none is installed.
        RuntimeError: If none works, or only on another machine, with the reasons.
    """
    installed = [engine for engine in ENGINES if which(engine.program)]
    if not installed:
        raise FileNotFoundError("neither docker nor podman is installed: install one of them")
    faults = []
    for engine in installed:
        answer = _ask(engine, *engine.query)
        kernel, _, rest = answer.stdout.decode("utf-8", "replace").strip().partition(" ")
        if answer.returncode != 0 or not kernel:
            faults.append(f"{engine.program} does not answer: {_last_line(answer.stderr)}")
        elif kernel != os.uname().release:
            faults.append(f"{engine.program} runs on another machine, with the kernel {kernel}")
        else:
            return engine, "rootless" in rest
    raise RuntimeError("; ".join(faults))


def _ask(engine: Engine, *words: str, sent: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [engine.program, *words]
    try:
        return subprocess.run(
            command,
            input=sent,
            capture_output=True,
            check=False,
            env=helper_environment(),
            timeout=ENGINE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, b"", b"no answer in time")


def _last_line(text: bytes) -> str:
    return (text.decode("utf-8", "replace").strip() or "no output").splitlines()[-1]


class ContainerSocket:
    """A socket in a slot's folder, to which the server in the container connects once."""

    def __init__(self, folder: Path) -> None:
        """Listen; users of the container have other ids than here, so all may connect."""
        shared = folder / SOCKET_FOLDER
        shared.mkdir()
        shared.chmod(0o755)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(ACCEPT_SECONDS)
        # The address of a socket has at most about 100 characters; the folder's path may have more.
        shared_fd = os.open(shared, os.O_RDONLY)
        address = f"/proc/self/fd/{shared_fd}/{os.path.basename(INNER_SOCKET)}"
        self._listener.bind(address)
        os.chmod(address, 0o666)  # noqa: S103  (the folder above is private)
        os.close(shared_fd)
        self._listener.listen(1)

    def accept(self, process: subprocess.Popen[bytes], seconds: float) -> socket.socket | None:
        """The first connection; None if the process ends or the time is over before it comes."""
        end = monotonic() + seconds
        while process.poll() is None and monotonic() < end:
            with suppress(TimeoutError):
                connection, _ = self._listener.accept()
                connection.setblocking(True)
                return connection
        return None

    def close(self) -> None:
        """Stop listening; an accepted connection stays open."""
        self._listener.close()
