"""A slot: the conversation with a server process in the sandbox, and the pool of slots."""

import atexit
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Lock
from time import monotonic
from typing import NamedTuple

from costada.evaluators.sandbox.concurrency import FairSemaphore, available_cores
from costada.evaluators.sandbox.inside.orders import BEGIN, num_descriptors, too_much_memory
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.slot_kind import SlotKind

START_SECONDS = 60.0
READY_SECONDS = 10.0
POLL_SECONDS = 0.5
CLOSE_SECONDS = 2.0
MAX_ANSWER_BYTES = 65536
MIN_SLOTS = 2


def _request_pipe() -> tuple[int, int]:
    read_fd, write_fd = os.pipe()
    return write_fd, read_fd


def _channel() -> tuple[int, int]:
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


MAKERS = (_request_pipe, os.pipe, os.pipe, _channel)
"""Make what comes with an order, each our end and the worker's: see `Pipes`."""


@dataclass(frozen=True, slots=True)
class SlotAnswer:
    """How a candidate ended, or that the server is ready for the next."""

    status: int = 0  # exit status, negative for a signal
    exceeded: str | None = None  # the limit that it exceeded, in words
    ended: float = 0.0  # when its process ended, on the monotonic clock
    group: int | None = None  # process group of the next candidate, if known before it starts
    bounds_files: bool = False  # whether a private file system bounds the files of candidates


class Pipes(NamedTuple):
    """Our ends of a candidate's pipes, and of its channel to models if it has one."""

    request_fd: int
    answer_fd: int
    log_fd: int
    channel_fd: int | None = None

    def close(self) -> None:
        """Close them."""
        for descriptor in self:
            if descriptor is not None:
                os.close(descriptor)


class Slot:
    """A server process that runs one candidate at a time. Not for two threads at once.

    Between two programs, a process for the next one is forked and confined ahead, with the limits
    of the one before.
    """

    def __init__(self, kind: SlotKind) -> None:
        """Start the process and wait until it is ready.

        Raises:
            FileNotFoundError: If the layer's program is not installed.
            BrokenPipeError: If something kills the process while it is starting.
            RuntimeError: If the process does not become ready, with its output.
        """
        self.kind = kind
        self._layer = Layer(kind.layer).implementation(kind)
        self.scratch = self._layer.scratch
        self.bounds_files = self._layer.has_filesystem
        self._is_ready = False
        self._is_all_loaded = not self._layer.loaded_late
        self._unread = b""
        self._memory_mb = 0
        self._prepared: tuple[dict[str, int], Pipes] | None = None
        with ExitStack() as undoing:
            # Called in reverse order: the folder can be removed once nothing writes to it.
            undoing.callback(self._layer.remove_unused_folder)
            undoing.callback(self.destroy)
            self._layer.launch()
            try:
                self._layer.send_files()
                self.await_ready()
            except BrokenPipeError:
                was_killed = self._layer.was_killed()
                self._layer.end()
                if was_killed:
                    raise BrokenPipeError("the slot was killed while it was starting") from None
                raise RuntimeError(
                    f"sandbox: {self._layer.program} started no process for candidates"
                    f" ({kind.layer}): {self._layer.last_output or 'no output'}"
                ) from None
            self._layer.settle()
            undoing.pop_all()

    @property
    def control(self) -> socket.socket:
        """Our end of the control socket."""
        return self._layer.control

    @property
    def is_alive(self) -> bool:
        """Whether the process waits for orders."""
        return self._layer.is_alive

    def await_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until the process can take an order; a BrokenPipeError says that it cannot."""
        if self._is_ready:
            return
        answer = self._await_answer(seconds)
        self._is_ready, self._layer.next_group = True, answer.group
        self.bounds_files |= answer.bounds_files

    def _await_answer(self, seconds: float) -> SlotAnswer:
        """The next answer; a BrokenPipeError says that none comes."""
        end = monotonic() + seconds
        self.control.settimeout(POLL_SECONDS)
        answer = None
        # What the process has started may hold the other end of the socket longer than it lives.
        while answer is None and not self._layer.has_ended and monotonic() < end:
            with suppress(TimeoutError):
                if (answer := self.answer()) is None:
                    break
        if answer is None:
            raise BrokenPipeError("the slot did not become ready")
        self.control.settimeout(None)
        return answer

    def load_all(self) -> None:
        """Have the process load what it loads late; that takes no time from a candidate.

        Raises:
            BrokenPipeError: If something killed the process.
            RuntimeError: If a module cannot be loaded, with the process's output.
        """
        if self._is_all_loaded:
            return
        self.await_ready(READY_SECONDS)
        self._discard()
        self._is_ready = False
        self.control.sendall(json.dumps({"load": self._layer.loaded_late}).encode() + b"\n")
        try:
            self.await_ready()
        except BrokenPipeError:
            was_killed = self._layer.was_killed()
            self._layer.end()
            if was_killed or not (output := self._layer.last_output):
                raise
            raise RuntimeError(f"sandbox: a module cannot be loaded: {output}") from None
        self._is_all_loaded = True

    def begin(self, limits: dict[str, int]) -> Pipes:
        """Have a candidate run with an `Order` of the fork server; an answer comes when it ends.

        Raises:
            BrokenPipeError: If the process is gone, or does not become ready.
            OSError: If pipes cannot be made.
        """
        self.await_ready(READY_SECONDS)
        # An answer before the program was sent: the prepared process has ended.
        has_ended = b"\n" in self._unread
        # It has confined itself with the limits of the candidate before, which cannot be loosened.
        if has_ended or (self._prepared and self._prepared[0] != limits):
            self._discard()
        # Before the program is sent: the bound is what the group holds now, and what may be added.
        self._layer.bound(limits)
        self._memory_mb = limits["memory_mb"]
        pipes = self._prepared[1] if self._prepared else self._order(limits)
        self._prepared, self._is_ready = None, False
        if not self.kind.is_single_use:
            with suppress(BrokenPipeError):  # the end of the socket is an answer as well
                self.control.sendall(BEGIN)
        return pipes

    def prepare(self, limits: dict[str, int]) -> None:
        """Have a process for the next candidate forked and confined once the last is cleared away.

        It waits for its program. Where this fails, it is forked when the next candidate begins. A
        spawn server prepares one by itself.
        """
        if not self.kind.is_single_use:
            with suppress(OSError):
                self._prepared = limits, self._order(limits)

    def _order(self, limits: dict[str, int]) -> Pipes:
        """Send an order, with the other ends of new pipes."""
        with ExitStack() as unless_sent, ExitStack() as theirs:
            kept, sent = [], []
            for make in MAKERS[: num_descriptors(limits)]:
                ours, other = make()
                unless_sent.callback(os.close, ours)
                theirs.callback(os.close, other)
                kept.append(ours)
                sent.append(other)
            socket.send_fds(self.control, [json.dumps(limits).encode() + b"\n"], sent)
            unless_sent.pop_all()
        # Our copies of the other ends are closed by now, so a pipe ends with its candidate.
        return Pipes(*kept)

    def _discard(self) -> None:
        """Have the prepared process killed, if there is one, and wait until all of it is gone."""
        if self._prepared is None:
            return
        self._close_prepared()
        self.cancel()
        self._await_answer(READY_SECONDS)
        self._is_ready = False
        self.await_ready(READY_SECONDS)

    def _close_prepared(self) -> None:
        if self._prepared is not None:
            self._prepared[1].close()
            self._prepared = None

    def clear(self) -> None:
        """Have the files removed that an order has left for the next."""
        with suppress(BrokenPipeError):
            self.await_ready(READY_SECONDS)
            self._is_ready = False
            self.control.sendall(b'{"clear": 1}\n')

    def cancel(self) -> None:
        """Have the candidate killed; the answer to its order comes soon."""
        with suppress(BrokenPipeError):
            self.control.sendall(b"kill\n")

    def answer(self) -> SlotAnswer | None:
        """The answer that has arrived; None if the process is gone."""
        with suppress(ConnectionResetError):
            while b"\n" not in self._unread:
                if not (text := self.control.recv(MAX_ANSWER_BYTES)):
                    return None
                self._unread += text
            line, _, self._unread = self._unread.partition(b"\n")
            answer = SlotAnswer(**json.loads(line))
            was_killed = answer.status == -signal.SIGKILL and answer.exceeded is None
            if was_killed and self._layer.has_run_out:
                return replace(answer, exceeded=too_much_memory(self._memory_mb))
            return answer
        return None

    def close(self) -> None:
        """Let the process end; kill it if it does not."""
        self.control.close()
        with suppress(subprocess.TimeoutExpired):
            if self._layer.process is not None:
                self._layer.process.wait(CLOSE_SECONDS)
        self.destroy()

    def destroy(self) -> None:
        """Kill the process and everything it started; a folder that is still written to is left."""
        # First, so that a server that is still alive sees the end of its orders and ends by itself.
        self.control.close()
        self._close_prepared()
        self._layer.end()
        self._layer.close()

    def abandon(self) -> None:
        """Let go of a slot that belongs to the process this one was forked from."""
        self._close_prepared()
        self._layer.abandon()


class Pool:
    """Keeps slots between evaluations, one candidate in each at a time; thread-safe."""

    def __init__(self, max_slots: int) -> None:
        self._turns = FairSemaphore(max_slots)
        self._idle: list[Slot] = []
        self._num_in_use = 0
        self._lock = Lock()

    def allow(self, num_slots: int) -> None:
        """Let at least so many slots be in use at once."""
        self._turns.raise_limit(num_slots)

    @contextmanager
    def acquire(self, kind: SlotKind) -> Iterator[Slot]:
        """A slot of a kind, started if none is idle.

        While all are in use, evaluations wait in the order in which they came.

        Raises:
            FileNotFoundError: If the layer's program is not installed.
            InterruptedError: If the evaluation was cancelled while it waited.
            RuntimeError: If the slot does not start.
        """
        with self._turns.permit():
            slot = None
            try:
                slot = self._take(kind) or Slot(kind)
                yield slot
            finally:
                with self._lock:
                    self._num_in_use -= 1
                    if slot is not None:
                        self._idle.append(slot)
                    dead = self._take_dead()
                for each in dead:
                    each.destroy()

    def _take(self, kind: SlotKind) -> Slot | None:
        """An idle slot of the kind; makes room for a new one if there is none.

        Ending other slots can take seconds, in which other threads take and return theirs.
        """
        with self._lock:
            self._num_in_use += 1
            dead, ended = self._take_dead(), None
            # The one used last, whose memory is most likely at hand; the oldest makes room.
            found = next((slot for slot in reversed(self._idle) if slot.kind == kind), None)
            if found is not None:
                self._idle.remove(found)
            elif len(self._idle) + self._num_in_use > self._turns.limit:
                ended = self._idle.pop(0)
        for slot in dead:
            slot.destroy()
        if ended is not None:
            ended.close()
        return found

    def _take_dead(self) -> list[Slot]:
        """Take out the idle slots whose process something outside has killed."""
        dead = [slot for slot in self._idle if not slot.is_alive]
        self._idle = [slot for slot in self._idle if slot not in dead]
        return dead

    def close(self) -> None:
        """End the idle slots."""
        with self._lock:
            idle, self._idle = self._idle, []
        for slot in reversed(idle):
            slot.close()

    def abandon(self) -> None:
        """Let go of slots that belong to the process this one was forked from."""
        # The lock may be held by a thread that does not exist here.
        for slot in self._idle:
            slot.abandon()
        self._idle, self._num_in_use, self._lock = [], 0, Lock()


def _pool(max_slots: int) -> Pool:
    """A pool that ends with this process, and that a fork of it does not share."""
    pool = Pool(max_slots)
    atexit.register(pool.close)
    os.register_at_fork(after_in_child=pool.abandon)
    return pool


SLOTS = _pool(max(MIN_SLOTS, available_cores()))
"""For candidates; at most so many run at once in this process."""

SHORT_SLOTS = _pool(1)
"""For what ends within seconds and must not wait behind candidates."""
