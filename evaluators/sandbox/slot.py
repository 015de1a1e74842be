"""One slot: a warm process on the other side of the wall, and the conversation with it."""

import json
import os
import signal
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp

from costada.evaluators.sandbox.inside import leavings
from costada.evaluators.sandbox.launch import SlotKind, launch
from costada.evaluators.sandbox.layers import Layer

START_SECONDS = 60.0
CLOSE_SECONDS = 2.0
MAX_ANSWER_BYTES = 65536
MAX_SWEEPS = 50
TOLD_BYTES = 2000


@dataclass(frozen=True, slots=True)
class SlotAnswer:
    """How a candidate ended: exit status, negative for a signal, and the limit it passed."""

    status: int = 0
    passed: str | None = None


class Slot:
    """A process that forks one candidate at a time. Not for two threads at once."""

    def __init__(self, kind: SlotKind) -> None:
        """Start the process and wait until it is ready.

        Raises:
            FileNotFoundError: If the layer's program is not installed.
            RuntimeError: If the process does not get ready, with what it said.
        """
        self.kind = kind
        self._keeper: int | None = None
        self._is_ready = False
        self._unread = b""
        self._home = Path(mkdtemp(prefix="costada-")).resolve()
        self._trouble = TemporaryFile()  # noqa: SIM115  (closed with the slot)
        self.control, theirs = socket.socketpair()
        info, theirs_info = socket.socketpair()
        with theirs, info, theirs_info:
            start = launch(kind, self._home, theirs.fileno(), theirs_info.fileno())
            self.scratch = start.scratch
            self._process = subprocess.Popen(
                start.command,
                env=start.environment,
                stdin=subprocess.DEVNULL,
                stdout=self._trouble,
                stderr=self._trouble,
                pass_fds=[theirs.fileno(), theirs_info.fileno()],
                start_new_session=True,
            )
            theirs.close()
            self._start()
            if kind.layer is Layer.BUBBLEWRAP:
                self._keeper = _inner_process(info)

    @property
    def is_alive(self) -> bool:
        """Whether the process waits for orders."""
        return self._process.poll() is None

    def await_ready(self) -> None:
        """Wait until the process can take an order.

        Raises:
            BrokenPipeError: If it is gone, or does not get ready.
        """
        if self._is_ready:
            return
        self.control.settimeout(START_SECONDS)
        try:
            self._is_ready = self.answer() is not None
        except TimeoutError:
            self._is_ready = False
        if not self._is_ready:
            raise BrokenPipeError("the slot does not get ready")
        self.control.settimeout(None)

    def order(self, limits: dict[str, int], descriptors: list[int]) -> None:
        """Have a candidate run; the answer comes when it has ended.

        Args:
            limits: See `inside/ward.py`.
            descriptors: Request, result and log.

        Raises:
            BrokenPipeError: If the process is gone.
        """
        self._is_ready = False
        socket.send_fds(self.control, [json.dumps(limits).encode() + b"\n"], descriptors)

    def cancel(self) -> None:
        """Ask for the end of the candidate; the answer to its order comes soon."""
        with suppress(BrokenPipeError):
            self.control.sendall(b"kill\n")

    def answer(self) -> SlotAnswer | None:
        """Return the answer that has arrived; None if the process is gone."""
        with suppress(ConnectionResetError):
            while b"\n" not in self._unread:
                if not (text := self.control.recv(MAX_ANSWER_BYTES)):
                    return None
                self._unread += text
            line, _, self._unread = self._unread.partition(b"\n")
            return SlotAnswer(**json.loads(line))
        return None

    def close(self) -> None:
        """Let the process end; kill it if it does not."""
        self.control.close()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self.destroy()
        self._trouble.close()
        leavings.remove(str(self._home))

    def destroy(self) -> None:
        """Kill the process and all that came from it, at once."""
        self.control.close()
        with suppress(ProcessLookupError):
            if self._keeper is not None:
                os.kill(self._keeper, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for _ in range(MAX_SWEEPS):
            if not _kill_marked(self._home):
                break
        leavings.remove(str(self._home))

    def trouble(self) -> str:
        """Return the last that the process said of itself."""
        self._trouble.seek(0)
        return self._trouble.read()[-TOLD_BYTES:].decode("utf-8", "replace").strip()

    def _start(self) -> None:
        try:
            self.await_ready()
        except BrokenPipeError:
            self.destroy()
            raise RuntimeError(
                f"sandbox: a process for candidates ({self.kind.layer}) did not start:"
                f" {self.trouble() or 'it said nothing'}"
            ) from None


def _inner_process(info: socket.socket) -> int:
    """Return the process that bubblewrap tells of: all others of the slot die with it."""
    number: int = json.loads(info.recv(MAX_ANSWER_BYTES))["child-pid"]
    return number


def _kill_marked(home: Path) -> bool:
    """Kill processes whose environment names a slot's folder; return whether there were any.

    Needed where a candidate killed the process that would have done it. Linux only.
    """
    mark = b"HOME=%s/" % os.fsencode(home)
    is_any = False
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
                is_any = True
    return is_any
