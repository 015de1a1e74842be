"""What an evaluator gets beyond its confinement: keys, network, GPUs, a container engine."""

import fcntl
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import gettempdir

from costada.evaluators.sandbox.concurrency import CANCELLED, is_cancelled

DEVICES = Path("/dev")
NVIDIA, DRI = "nvidia", "dri"
NODES = {NVIDIA: re.compile(r"nvidia(\d+)"), DRI: re.compile(r"renderD(\d+)")}
SHARED_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
"""What CUDA opens beside the node of a GPU."""

ENGINE_SOCKETS = ("/var/run/docker.sock", "/run/user/{user}/docker.sock")
DOCKER_HOST = "DOCKER_HOST"
WAIT_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Opened:
    """What one evaluation gets.

    Attributes:
        keys: Environment variables.
        has_network: Whether it reaches every address.
        devices: Device nodes.
        engine_socket: Socket of a container engine; empty if none.
    """

    keys: Mapping[str, str] = field(default_factory=dict, hash=False)
    has_network: bool = False
    devices: tuple[str, ...] = ()
    engine_socket: str = ""

    def __bool__(self) -> bool:
        """Whether it gets anything."""
        return bool(self.keys or self.has_network or self.devices or self.engine_socket)

    @property
    def of_slot(self) -> "Opened":
        """The part that a slot is prepared for: keys come with each request."""
        return replace(self, keys={})


NOTHING = Opened()


def gpus_here(driver: str) -> list[tuple[str, ...]]:
    """The device nodes of each GPU of this machine, or of those that CUDA_VISIBLE_DEVICES names."""
    folder = DEVICES / "dri" if driver == DRI else DEVICES
    names = os.listdir(folder) if folder.is_dir() else []
    numbers = sorted(int(found[1]) for name in names if (found := NODES[driver].fullmatch(name)))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") if driver == NVIDIA else None
    if visible is not None:
        numbers = [number for number in numbers if str(number) in visible.split(",")]
    if driver == DRI:
        return [(str(folder / f"renderD{number}"),) for number in numbers]
    shared = [folder / name for name in SHARED_NODES]
    others = tuple(str(path) for path in shared if path.exists())
    return [(str(folder / f"nvidia{number}"), *others) for number in numbers]


@contextmanager
def assigned_gpus(driver: str, count: float) -> Iterator[tuple[str, ...]]:
    """The nodes of so many GPUs, which no other evaluation on this machine has meanwhile.

    Of a fraction, as many evaluations share a GPU as it says. Waits for GPUs that are in use.

    Raises:
        InterruptedError: If the evaluation was cancelled while it waited.
        PermissionError: If somebody else has taken the name of the folder of locks.
    """
    locks = Path(gettempdir()) / f"costada-gpus-{os.getuid()}"
    locks.mkdir(mode=0o700, exist_ok=True)
    about = locks.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
        raise PermissionError(f"{locks}: is not a folder of this user; remove it")
    places = range(int(1 / count)) if count < 1 else [0]
    while True:
        with ExitStack() as stack:
            nodes: dict[str, None] = {}
            num_held = 0
            for gpu in gpus_here(driver):
                if num_held < max(1, count) and _has_locked(stack, locks, gpu[0], places, count):
                    num_held += 1
                    nodes |= dict.fromkeys(gpu)
            if num_held >= max(1, count):
                yield tuple(nodes)
                return
        if is_cancelled(WAIT_SECONDS):
            raise InterruptedError(CANCELLED)


def _has_locked(
    stack: ExitStack, locks: Path, node: str, places: range | list[int], count: float
) -> bool:
    """Whether a GPU, or a place on one that is shared, is locked until the stack ends."""
    name = os.path.basename(node)
    whole = fcntl.LOCK_SH if count < 1 else fcntl.LOCK_EX
    if not _lock(stack, locks / name, whole):
        return False
    return count >= 1 or any(
        _lock(stack, locks / f"{name}.{place}", fcntl.LOCK_EX) for place in places
    )


def _lock(stack: ExitStack, path: Path, kind: int) -> bool:
    lock_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock_fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock_fd)
        return False
    stack.callback(os.close, lock_fd)
    return True


def engine_socket() -> str:
    """The socket of the container engine of this machine, without links; empty if there is none."""
    told = os.environ.get(DOCKER_HOST, "")
    named = told.removeprefix("unix://") if told.startswith("unix://") else ""
    usual = [] if told else [path.format(user=os.getuid()) for path in ENGINE_SOCKETS]
    for path in filter(None, (named, *usual)):
        real = os.path.realpath(path)
        if os.path.exists(real) and stat.S_ISSOCK(os.stat(real).st_mode):
            return real
    return ""
