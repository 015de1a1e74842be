"""One candidate in one slot: started, listened to, stopped when it is time."""

import os
import selectors
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from math import ceil, inf
from tempfile import TemporaryFile
from time import monotonic

from costada.evaluators.sandbox.interruption import current_interruption
from costada.evaluators.sandbox.launch import SlotKind
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits
from costada.evaluators.sandbox.pool import SLOTS
from costada.evaluators.sandbox.slot import READY_SECONDS, Slot
from costada.evaluators.sandbox.streams import Frames, Stream
from costada.evaluators.sandbox.wire import LENGTH_BYTES, encode

MAX_PRINTED_BYTES = 64 * MEBIBYTE
CPU_GRACE_SECONDS = 5
GRACE_SECONDS = 2.0
FRAME_BYTES = 256
"""Room for the frame of each answer beside its data."""

ERROR_BYTES = 8192
"""Room for an error in place of an answer, however short answers must be."""

MAX_WAIT_SECONDS = 3600.0
"""A selector does not take any number."""

MAX_ATTEMPTS = 3
MAX_CPU_SECONDS = 2**31

NUM_OPENING_FRAMES = 2
"""One before the program is loaded, one after; then comes one for each call."""

CHILD_LIMITS = ("memory_mb", "scratch_mb", "threads", "processes")
INTERRUPTED = "the evaluation was interrupted"
TOO_MANY_FRAMES = "malformed answer: more than was asked for"


@dataclass(slots=True)
class Execution:
    """A candidate's run, as far as it is known.

    Attributes:
        slot: Where it runs.
        limits: What it may take.
        num_calls: How many calls were asked for.
        seconds: What is left of the wall limit.
        answers: What came over the result pipe.
        log: What was printed.
        frames: The answers, one by one.
        started: When it began, on the monotonic clock.
        stopped: Why it was stopped; None if not.
        stop_end: When it must be over after it was stopped.
        status: Exit status, negative for a signal; None until the slot tells.
        passed: Which limit the slot saw it pass; None if none.
        is_slot_lost: Whether the slot died or does not react.
        is_call_late: Whether it was stopped because one call passed its own time.
        num_in_time: How many frames had come by then; None if that did not happen.
    """

    slot: Slot
    limits: Limits
    num_calls: int
    seconds: float
    answers: Stream
    log: Stream
    frames: Frames = field(init=False)
    started: float = field(default_factory=monotonic)
    stopped: str | None = None
    stop_end: float = 0.0
    status: int | None = None
    passed: str | None = None
    is_slot_lost: bool = False
    is_call_late: bool = False
    num_in_time: int | None = None

    def __post_init__(self) -> None:
        """Begin to cut the answers."""
        self.frames = Frames(self.answers, NUM_OPENING_FRAMES + self.num_calls)

    @property
    def seconds_since_answer(self) -> float:
        """Time since the last call was answered, or since the start."""
        arrivals = self.frames.arrivals
        is_calling = len(arrivals) > NUM_OPENING_FRAMES
        return monotonic() - (arrivals[-1] if is_calling else self.started)

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.status is not None or self.is_slot_lost

    @property
    def deadline(self) -> float:
        """When the run must have got on."""
        if self.stopped is not None:
            return self.stop_end
        return min(self._end, self._call_end)

    @property
    def _end(self) -> float:
        return self.started + self.seconds

    @property
    def _call_end(self) -> float:
        """When the call under way must be answered."""
        is_calling = len(self.frames.arrivals) >= NUM_OPENING_FRAMES
        is_calling &= len(self.frames.arrivals) < NUM_OPENING_FRAMES + self.num_calls
        if self.limits.call_seconds is None or not is_calling:
            return inf
        return self.frames.arrivals[-1] + self.limits.call_seconds

    def expire(self) -> None:
        """Take in that the deadline has passed: stop, or give up a slot that does not stop."""
        if self.stopped is not None:
            self.is_slot_lost = True
        elif self._call_end < self._end:
            self.is_call_late = True
            self.num_in_time = len(self.frames.arrivals)
            self.stop(f"timeout: the call exceeded {self.limits.call_seconds:g} s")
        else:
            self.stop(too_slow(self.limits.wall_seconds))

    def stop(self, reason: str) -> None:
        """Have the run ended, for the first reason there is."""
        if self.stopped is None:
            self.stopped = reason
            self.stop_end = monotonic() + GRACE_SECONDS
            self.slot.cancel()

    def end(self) -> None:
        """Take in the slot's answer."""
        answer = self.slot.answer()
        if answer is None:
            self.is_slot_lost = True
        else:
            self.status, self.passed = answer.status, answer.passed
            self.answers.drain()
            self.log.drain()


def request_for(source: bytes, call: Mapping[str, object]) -> bytes:
    """Return what a child reads: the length of a message, the message (see wire.py), the source.

    Raises:
        ValueError: If an argument of the call is no plain data.
    """
    message = encode(dict(call))
    return len(message).to_bytes(LENGTH_BYTES, "big") + message + source


def too_slow(seconds: float) -> str:
    """Return what is said of a program that passed the wall limit."""
    return f"timeout: the program exceeded {seconds:g} s"


def too_long(max_bytes: int) -> str:
    """Return what is said of an answer that is longer than allowed."""
    return f"the program returned more than {max_bytes} bytes"


def execute(
    slot: Slot, request: bytes, limits: Limits, num_calls: int, seconds: float
) -> Execution:
    """Return how a fresh child of the slot dealt with a request; nothing of it is alive then.

    A slot that is lost on the way, or left by an exception, has been destroyed.

    Raises:
        BrokenPipeError: If the slot was lost before.
        InterruptedError: If the evaluation was asked to stop.
        OSError: If pipes or the request's file cannot be made.
    """
    interruption = current_interruption.get()
    with _destroyed_unless_ended(slot), ExitStack() as stack:
        slot.await_ready(READY_SECONDS)
        execution = _begin(slot, request, limits, num_calls, seconds, stack)
        selector = stack.enter_context(selectors.DefaultSelector())
        for stream in (execution.answers, execution.log):
            selector.register(stream.fd, selectors.EVENT_READ, stream)
        selector.register(slot.control, selectors.EVENT_READ, slot)
        selector.register(interruption, selectors.EVENT_READ, interruption)
        while not execution.has_ended:
            _listen(execution, selector)
    if execution.is_slot_lost:
        slot.destroy()
        if not execution.frames.arrivals and execution.stopped is None:
            raise BrokenPipeError("the slot was lost before the program began")
    if execution.stopped == INTERRUPTED:
        raise InterruptedError(INTERRUPTED)
    return execution


def execute_in_any(
    kind: SlotKind,
    request: bytes,
    limits: Limits,
    num_calls: int,
    seconds: float,
    *,
    needs_all: bool = False,
) -> Execution:
    """Return the same for any slot of a kind; one that is killed before the program is replaced.

    Args:
        kind: What the slot is for.
        request: See `request_for`.
        limits: What the run may take.
        num_calls: How many calls are asked for.
        seconds: The wall limit.
        needs_all: Whether the program names what a slot loads late.

    Raises:
        InterruptedError: If the evaluation was asked to stop.
        OSError: If pipes, folders or the request's file cannot be made.
        RuntimeError: If no slot starts, with the reason.
    """
    for _ in range(MAX_ATTEMPTS):
        with suppress(BrokenPipeError), SLOTS.lend(kind) as slot:
            if needs_all:
                slot.load_all()
            return execute(slot, request, limits, num_calls, seconds)
    raise RuntimeError(
        f"sandbox: the process for candidates ({kind.layer}) was killed {MAX_ATTEMPTS} times, while"
        " it was idle or starting: something outside kills it, or the machine is out of memory"
    )


def _listen(execution: Execution, selector: selectors.BaseSelector) -> None:
    """Wait for the next thing to happen, and take it in."""
    if (remaining := execution.deadline - monotonic()) <= 0:
        execution.expire()
        return
    for key, _ in selector.select(min(remaining, MAX_WAIT_SECONDS)):
        if isinstance(key.data, Stream):
            key.data.read()
            if not key.data.is_open:
                selector.unregister(key.data.fd)
        elif isinstance(key.data, Slot):
            execution.end()
        else:
            selector.unregister(key.data)
            execution.stop(INTERRUPTED)
    execution.frames.update()
    if excess := execution.answers.passed or execution.log.passed:
        execution.stop(excess)
    if execution.frames.are_too_many:
        execution.stop(TOO_MANY_FRAMES)


def _begin(
    slot: Slot,
    request: bytes,
    limits: Limits,
    num_calls: int,
    seconds: float,
    stack: ExitStack,
) -> Execution:
    answer_fd, theirs_answer = os.pipe()
    log_fd, theirs_log = os.pipe()
    for fd in (answer_fd, log_fd):
        stack.callback(os.close, fd)
        os.set_blocking(fd, False)
    too_chatty = f"the program printed more than {MAX_PRINTED_BYTES // MEBIBYTE} MB"
    max_answer_bytes = limits.result_bytes + (FRAME_BYTES + ERROR_BYTES) * num_calls
    excess = too_long(limits.result_bytes)
    answers = Stream(answer_fd, max_answer_bytes, max_answer_bytes, excess)
    log = Stream(log_fd, limits.log_bytes, MAX_PRINTED_BYTES, too_chatty)
    cpu_seconds = (ceil(limits.wall_seconds) + CPU_GRACE_SECONDS) * (os.cpu_count() or 1)
    cpu_seconds = min(cpu_seconds, MAX_CPU_SECONDS)
    bounds = {name: getattr(limits, name) for name in CHILD_LIMITS} | {"cpu_seconds": cpu_seconds}
    try:
        with TemporaryFile() as file:
            file.write(request)
            file.seek(0)
            slot.order(bounds, [file.fileno(), theirs_answer, theirs_log])
    finally:
        os.close(theirs_answer)
        os.close(theirs_log)
    return Execution(slot, limits, num_calls, seconds, answers, log)


@contextmanager
def _destroyed_unless_ended(slot: Slot) -> Iterator[None]:
    """Destroy the slot if anything is raised: its candidate may still be running."""
    is_ended = False
    try:
        yield
        is_ended = True
    finally:
        if not is_ended:
            slot.destroy()
