"""One child process from start to end: started clean, watched, and killed with all it started."""

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic

from costada.evaluators.sandbox.limits import MEBIBYTE, Limits

CHILD_FILE = Path(__file__).with_name("child.py")
MAX_PRINTED_BYTES = 64 * MEBIBYTE
CHUNK_BYTES = 65536
MAX_SWEEPS = 50
THREAD_VARIABLES = (
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a child process ended.

    Attributes:
        answer: The bytes that came over the result pipe.
        log: The beginning of what was printed.
        status: Exit status; negative is the signal that ended the child.
        stopped: Why we stopped it; None if it ended by itself.
        seconds: Time from start to end.
    """

    answer: bytes
    log: bytes
    status: int
    stopped: str | None
    seconds: float


@dataclass(slots=True)
class _Stream:
    """Reads one pipe without blocking; keeps its beginning, refuses more than a maximum."""

    fd: int
    kept_bytes: int
    max_bytes: int
    excess: str
    kept: bytearray = field(default_factory=bytearray)
    num_read: int = 0
    is_open: bool = True

    def read(self) -> None:
        with suppress(BlockingIOError):
            chunk = os.read(self.fd, CHUNK_BYTES)
            self.is_open = bool(chunk)
            self.num_read += len(chunk)
            self.kept += chunk[: self.kept_bytes - len(self.kept)]

    def drain(self) -> None:
        before = -1
        while self.is_open and before != self.num_read <= self.max_bytes:
            before = self.num_read
            self.read()


def run_process(request: bytes, scratch: Path, limits: Limits) -> Ending:
    """Return how a fresh child dealt with a request; nothing of it is alive afterwards.

    Args:
        request: Message for the child (see child.py).
        scratch: Directory that is the child's home and working directory.
        limits: Wall-clock and size limits.

    Raises:
        RuntimeError: If the interpreter cannot be started.
    """
    started = monotonic()
    late = f"timeout: the program exceeded {limits.wall_seconds:g} s"
    too_long = f"the program returned more than {limits.result_bytes} bytes"
    too_chatty = f"the program printed more than {MAX_PRINTED_BYTES // MEBIBYTE} MB"
    with ExitStack() as stack:
        answer_fd, write_fd = os.pipe()
        stack.callback(os.close, answer_fd)
        log_fd, print_fd = os.pipe()
        stack.callback(os.close, log_fd)
        answer = _Stream(answer_fd, limits.result_bytes, limits.result_bytes, too_long)
        log = _Stream(log_fd, limits.log_bytes, MAX_PRINTED_BYTES, too_chatty)
        try:
            process = _start(request, scratch, write_fd, print_fd)
        finally:
            os.close(write_fd)
            os.close(print_fd)
        with _killed_afterwards(process, scratch):
            stopped = _watch(process, answer, log, started + limits.wall_seconds, late)
    seconds = monotonic() - started
    return Ending(bytes(answer.kept), bytes(log.kept), process.returncode, stopped, seconds)


def _start(
    request: bytes, scratch: Path, write_fd: int, print_fd: int
) -> "subprocess.Popen[bytes]":
    environment = dict.fromkeys(THREAD_VARIABLES, "1")
    environment |= {"HOME": str(scratch), "TMPDIR": str(scratch), "PYTHONHASHSEED": "0"}
    options = ["-s", "-P", "-B", "-u", "-X", "utf8"]
    with TemporaryFile() as source:
        source.write(request)
        source.seek(0)
        try:
            return subprocess.Popen(
                [sys.executable, *options, str(CHILD_FILE), str(write_fd)],
                stdin=source,
                stdout=print_fd,
                stderr=print_fd,
                cwd=scratch,
                env=environment,
                pass_fds=[write_fd],
                start_new_session=True,
            )
        except OSError as error:
            raise RuntimeError(f"sandbox: cannot start {sys.executable!r}: {error}") from error


def _watch(
    process: "subprocess.Popen[bytes]", answer: _Stream, log: _Stream, deadline: float, late: str
) -> str | None:
    """Return None once the child has ended, else which limit it passed (late: the deadline)."""
    with selectors.DefaultSelector() as selector, ExitStack() as stack:
        for stream in (answer, log):
            os.set_blocking(stream.fd, False)
            selector.register(stream.fd, selectors.EVENT_READ, stream)
        exit_fd = _exit_event(process.pid)
        if exit_fd is not None:
            stack.callback(os.close, exit_fd)
            selector.register(exit_fd, selectors.EVENT_READ, None)
        while (remaining := deadline - monotonic()) > 0:
            ready = [key.data for key, _ in selector.select(remaining)]
            for stream in filter(None, ready):
                stream.read()
                if not stream.is_open:
                    selector.unregister(stream.fd)
            if None in ready or (exit_fd is None and not answer.is_open):
                answer.drain()
                log.drain()
                return _excess(answer, log)
            if excess := _excess(answer, log):
                return excess
    return late


def _exit_event(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a process ends, where the system has it."""
    if hasattr(os, "pidfd_open"):
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _excess(*streams: _Stream) -> str | None:
    return next((s.excess for s in streams if s.num_read > s.max_bytes), None)


@contextmanager
def _killed_afterwards(process: "subprocess.Popen[bytes]", scratch: Path) -> Iterator[None]:
    """Kill a process and all it started at the end, whatever happens, and collect it.

    The process is collected last: until then its number cannot pass to a stranger.
    """
    try:
        yield
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for _ in range(MAX_SWEEPS):
            if not _kill_descendants(process.pid, scratch):
                break
        process.wait()


def _kill_descendants(leader: int, scratch: Path) -> bool:
    """Kill what a process left behind (Linux only); return whether there was anything."""
    proc = Path("/proc")
    numbers = [int(p.name) for p in proc.iterdir() if p.name.isdigit()] if proc.is_dir() else []
    is_any = False
    for number in numbers:
        with suppress(OSError):
            if number != leader and _descends(number, leader, scratch):
                os.kill(number, signal.SIGKILL)
                is_any = True
    return is_any


def _descends(number: int, leader: int, scratch: Path) -> bool:
    """Return whether a process shares the leader's session, or its home if it left that."""
    if os.getsid(number) == leader:
        return True
    return b"HOME=%s\0" % os.fsencode(scratch) in Path(f"/proc/{number}/environ").read_bytes()
