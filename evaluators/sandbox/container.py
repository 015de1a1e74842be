"""Docker or Podman around the process that candidates are forked from.

Its image is empty and made on the spot: the container sees the interpreter and the packages of this
machine, so nothing is downloaded and the versions agree. Descriptors cannot be handed to a
container, so orders come through a socket in a folder that both see; that works only where the
engine runs on this machine and under its kernel.
"""

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import which

from costada.evaluators.sandbox.door import DOOR_NAME, INNER_DOOR
from costada.evaluators.sandbox.limits import MEBIBYTE

IMAGE = "costada-empty:1"
EMPTY_ARCHIVE = bytes(10240)
"""A tar file without entries."""

MAX_PROCESSES = 4096
MEMORY_SHARE = 0.75
ENGINE_SECONDS = 30.0
PROXY_VARIABLES = ("ALL_PROXY", "FTP_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
"""Engines set these in a container if they are configured to, user names and all."""

CONFINEMENT = (
    *("--network", "none", "--ipc", "none", "--hostname", "sandbox"),
    *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    *("--security-opt", "label=disable", "--pids-limit", str(MAX_PROCESSES)),
    *("--tmpfs", "/dev/shm:rw,size=4k,mode=0555"),  # noqa: S108  (of the container)
)
"""Without label=disable, SELinux hides all of this machine's files, the interpreter too."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that runs containers.

    Attributes:
        program: Its name.
        question: Arguments that make it tell its kernel, and whether it runs without root.
        options: What it needs to be told beside what all are told.
    """

    program: str
    question: tuple[str, ...]
    options: tuple[str, ...] = ()


ENGINES = (
    Engine("docker", ("info", "--format", "{{.KernelVersion}} {{.SecurityOptions}}")),
    Engine(
        "podman",
        ("info", "--format", "{{.Host.Kernel}} {{if .Host.Security.Rootless}}rootless{{end}}"),
        ("--http-proxy=false", "--read-only-tmpfs=false"),
    ),
)


@dataclass(frozen=True, slots=True)
class Inside:
    """What a container holds.

    Attributes:
        home: A folder in memory, the only one that can be written to.
        home_mb: Its size in MiB.
        mounts: Paths of this machine that are seen at the same place, not to be changed.
        environment: Environment variables.
    """

    home: str
    home_mb: int
    mounts: Sequence[str]
    environment: Mapping[str, str]


def run_command(home: Path, inside: Inside) -> list[str]:
    """Return the command that runs what is appended to it in a container.

    Args:
        home: Folder of the slot, with its door; the container is named after it.
        inside: What the container holds.

    Raises:
        FileNotFoundError: If no engine is installed.
        RuntimeError: If none works, or only on another machine, with the reasons.
    """
    engine, is_rootless = local_engine()
    _make_image(engine)
    return command_of(engine, home, inside, is_rootless=is_rootless)


def command_of(engine: Engine, home: Path, inside: Inside, *, is_rootless: bool) -> list[str]:
    """Return the same for one engine; asks nothing of it."""
    memory = int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * MEMORY_SHARE)
    # Where the engine runs without root, root in the container is this user already.
    user = [] if is_rootless else ["--user", f"{os.getuid()}:{os.getgid()}"]
    size = inside.home_mb * MEBIBYTE
    return [
        *(engine.program, "run", "--rm", "--pull", "never", "--name", home.name),
        *("--stop-signal", "KILL", *CONFINEMENT, "--memory", str(memory), *user, *engine.options),
        *("--tmpfs", f"{inside.home}:rw,nosuid,nodev,noexec,size={size},mode=1777"),
        *_mount(str(home / DOOR_NAME), INNER_DOOR),
        *(word for path in _outermost(inside.mounts) for word in _mount(path, path)),
        *(word for pair in _variables(inside.environment) for word in ("--env", pair)),
        *("--workdir", inside.home, IMAGE),
    ]


def _mount(path: str, place: str) -> tuple[str, str]:
    return "--mount", f"type=bind,source={path},target={place},readonly"


def _outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths that do not lie in one of the others."""
    given = set(paths)
    return [
        path
        for path in dict.fromkeys(paths)
        if os.path.exists(path) and not given & {str(parent) for parent in Path(path).parents}
    ]


def _variables(environment: Mapping[str, str]) -> list[str]:
    cleared = dict.fromkeys((*PROXY_VARIABLES, *map(str.lower, PROXY_VARIABLES)), "")
    return [f"{name}={value}" for name, value in {**cleared, **environment}.items()]


@cache
def local_engine() -> tuple[Engine, bool]:
    """Return the first engine that runs on this machine, and whether it does so without root.

    Raises:
        FileNotFoundError: If none is installed.
        RuntimeError: If none works, or only on another machine, with the reasons.
    """
    installed = [engine for engine in ENGINES if which(engine.program)]
    if not installed:
        raise FileNotFoundError("neither docker nor podman is installed")
    faults = []
    for engine in installed:
        answer = _ask(engine, *engine.question)
        kernel, _, rest = answer.stdout.decode("utf-8", "replace").strip().partition(" ")
        if answer.returncode != 0 or not kernel:
            faults.append(f"{engine.program} does not answer: {_last_line(answer.stderr)}")
        elif kernel != os.uname().release:
            faults.append(f"{engine.program} runs on another machine, with the kernel {kernel}")
        else:
            return engine, "rootless" in rest
    raise RuntimeError("; ".join(faults))


def _make_image(engine: Engine) -> None:
    if _ask(engine, "image", "inspect", IMAGE).returncode == 0:
        return
    made = _ask(engine, "import", "-", IMAGE, sent=EMPTY_ARCHIVE)
    if made.returncode != 0:
        raise RuntimeError(f"{engine.program} makes no image: {_last_line(made.stderr)}")


def remove(home: Path) -> None:
    """End the container of a slot, if there is one, and all that is in it."""
    engine, _ = local_engine()
    _ask(engine, "rm", "--force", home.name)


def _ask(engine: Engine, *words: str, sent: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [engine.program, *words]
    try:
        return subprocess.run(
            command, input=sent, capture_output=True, check=False, timeout=ENGINE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, b"", b"no answer in time")


def _last_line(text: bytes) -> str:
    return (text.decode("utf-8", "replace").strip() or "it said nothing").splitlines()[-1]
