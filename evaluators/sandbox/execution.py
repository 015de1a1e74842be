"""One candidate in one slot: started, listened to, stopped when it is time."""

import os
import selectors
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from math import ceil, inf
from time import monotonic

from costada.evaluators.sandbox.interruption import current_interruption
from costada.evaluators.sandbox.launch import SlotKind
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits
from costada.evaluators.sandbox.pool import SLOTS
from costada.evaluators.sandbox.slot import READY_SECONDS, Slot
from costada.evaluators.sandbox.streams import Frames, Questions, Stream
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


@dataclass(frozen=True, slots=True)
class Request:
    """What a child is asked.

    Attributes:
        opening: What it reads before it loads the program.
        calls: The arguments of each call, which it reads when its turn comes.
    """

    opening: bytes
    calls: tuple[bytes, ...]


@dataclass(slots=True)
class Execution:
    """A candidate's run, as far as it is known.

    Attributes:
        slot: Where it runs.
        limits: What it may take.
        request: What is asked.
        seconds: What is left of the wall limit.
        questions: Where the request goes.
        answers: What came over the result pipe.
        log: What was printed.
        frames: The answers, one by one.
        started: When it began, on the monotonic clock.
        asked: When the arguments of each call were sent.
        stopped: Why it was stopped; None if not.
        stop_end: When it must be over after it was stopped.
        ended: When its end was told, or given up.
        status: Exit status, negative for a signal; None until the slot tells.
        passed: Which limit the slot saw it pass; None if none.
        is_slot_lost: Whether the slot died or does not react.
        num_in_time: How many calls were over when one passed its own time, for which it was
            stopped; None if that did not happen.
    """

    slot: Slot
    limits: Limits
    request: Request
    seconds: float
    questions: Questions
    answers: Stream
    log: Stream
    frames: Frames = field(init=False)
    started: float = field(default_factory=monotonic)
    asked: list[float] = field(default_factory=list)
    stopped: str | None = None
    stop_end: float = 0.0
    ended: float = 0.0
    status: int | None = None
    passed: str | None = None
    is_slot_lost: bool = False
    num_in_time: int | None = None

    def __post_init__(self) -> None:
        """Begin to cut the answers."""
        self.frames = Frames(self.answers, NUM_OPENING_FRAMES)

    @property
    def num_calls(self) -> int:
        """How many calls are asked for."""
        return len(self.request.calls)

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
        """When the current call must be answered or, after the last call, the process must end."""
        if self.limits.call_seconds is None or not self.asked:
            return inf
        return self.asked[-1] + self.limits.call_seconds

    def listen(self) -> None:
        """Note the answers that have come, and ask for the next when its turn has."""
        self.frames.update()
        if excess := self.answers.passed or self.log.passed:
            self.stop(excess)
        if self.frames.are_too_many:
            self.stop(TOO_MANY_FRAMES)
        num_asked = len(self.asked)
        is_due = len(self.frames.arrivals) == NUM_OPENING_FRAMES + num_asked < self._last_frame
        is_running = self.stopped is None and not self.has_ended
        if is_due and is_running and self.frames.is_loaded:
            message = self.request.calls[num_asked]
            self.asked.append(monotonic())
            self.frames.max_frames += 1
            self.questions.put(message, is_last=num_asked + 1 == self.num_calls)

    @property
    def _last_frame(self) -> int:
        return NUM_OPENING_FRAMES + self.num_calls

    def expire(self) -> None:
        """Take in that the deadline has passed: stop, or give up a slot that does not stop."""
        if self.stopped is not None:
            self.is_slot_lost = True
        elif self._call_end < self._end:
            self.num_in_time = len(self.asked) - 1
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


def request_for(
    source: bytes, call: Mapping[str, object], calls: Sequence[Mapping[str, object]]
) -> Request:
    """Return what a child is asked: to load a source, and calls of it.

    Args:
        source: The program.
        call: What is to be done with it; see `inside/child.py`.
        calls: The keyword arguments of each call.

    Raises:
        ValueError: If an argument of a call is no plain data.
    """
    message = encode(dict(call))
    opening = _framed(_framed(message) + source)
    return Request(opening, tuple(_framed(encode(dict(arguments))) for arguments in calls))


def _framed(message: bytes) -> bytes:
    return len(message).to_bytes(LENGTH_BYTES, "big") + message


def too_slow(seconds: float) -> str:
    """Return what is said of a program that passed the wall limit."""
    return f"timeout: the program exceeded {seconds:g} s"


def too_long(max_bytes: int) -> str:
    """Return what is said of an answer that is longer than allowed."""
    return f"the program returned more than {max_bytes} bytes"


def execute(slot: Slot, request: Request, limits: Limits, seconds: float) -> Execution:
    """Return how a fresh child of the slot dealt with a request; nothing of it is alive then.

    A slot that is lost on the way, or left by an exception, has been destroyed.

    Raises:
        BrokenPipeError: If the slot was lost before.
        InterruptedError: If the evaluation was asked to stop.
        OSError: If pipes cannot be made.
    """
    interruption = current_interruption.get()
    with _destroyed_unless_ended(slot), ExitStack() as stack:
        slot.await_ready(READY_SECONDS)
        execution = _begin(slot, request, limits, seconds, stack)
        selector = stack.enter_context(selectors.DefaultSelector())
        for stream in (execution.answers, execution.log):
            selector.register(stream.fd, selectors.EVENT_READ, stream)
        selector.register(slot.control, selectors.EVENT_READ, slot)
        selector.register(interruption, selectors.EVENT_READ, interruption)
        while not execution.has_ended:
            _listen(execution, selector)
        execution.ended = monotonic()
    if execution.is_slot_lost:
        slot.destroy()
        if not execution.frames.arrivals and execution.stopped is None:
            raise BrokenPipeError("the slot was lost before the program began")
    if execution.stopped == INTERRUPTED:
        raise InterruptedError(INTERRUPTED)
    return execution


def execute_in_any(
    kind: SlotKind,
    request: Request,
    limits: Limits,
    seconds: float,
    *,
    needs_all: bool = False,
) -> Execution:
    """Return the same for any slot of a kind; one that is killed before the program is replaced.

    Args:
        kind: What the slot is for.
        request: See `request_for`.
        limits: What the run may take.
        seconds: The wall limit.
        needs_all: Whether the program names what a slot loads late.

    Raises:
        InterruptedError: If the evaluation was asked to stop.
        OSError: If pipes or folders cannot be made.
        RuntimeError: If no slot starts, with the reason.
    """
    for _ in range(MAX_ATTEMPTS):
        with suppress(BrokenPipeError), SLOTS.lend(kind) as slot:
            if needs_all:
                slot.load_all()
            return execute(slot, request, limits, seconds)
    raise RuntimeError(
        f"sandbox: the process for candidates ({kind.layer}) was killed {MAX_ATTEMPTS} times, while"
        " it was idle or starting: something outside kills it, or the machine is out of memory"
    )


def _listen(execution: Execution, selector: selectors.BaseSelector) -> None:
    """Wait for the next thing to happen, and take it in."""
    if (remaining := execution.deadline - monotonic()) <= 0:
        execution.expire()
        return
    with _writing(execution.questions, selector):
        happened = selector.select(min(remaining, MAX_WAIT_SECONDS))
    for key, _ in happened:
        if isinstance(key.data, Stream):
            key.data.read()
            if not key.data.is_open:
                selector.unregister(key.data.fd)
        elif isinstance(key.data, Questions):
            key.data.write()
        elif isinstance(key.data, Slot):
            execution.end()
        else:
            selector.unregister(key.data)
            execution.stop(INTERRUPTED)
    execution.listen()


@contextmanager
def _writing(questions: Questions, selector: selectors.BaseSelector) -> Iterator[None]:
    """Have the selector wait for room to write, too, if something has to be written."""
    if not questions.has_rest:
        yield
        return
    selector.register(questions.fd, selectors.EVENT_WRITE, questions)
    yield
    selector.unregister(questions.fd)


def _begin(
    slot: Slot, request: Request, limits: Limits, seconds: float, stack: ExitStack
) -> Execution:
    theirs_request, question_fd = os.pipe()
    questions = Questions(question_fd)
    stack.callback(questions.close)
    answer_fd, theirs_answer = os.pipe()
    log_fd, theirs_log = os.pipe()
    for fd in (answer_fd, log_fd):
        stack.callback(os.close, fd)
        os.set_blocking(fd, False)
    too_chatty = f"the program printed more than {MAX_PRINTED_BYTES // MEBIBYTE} MB"
    max_answer_bytes = limits.result_bytes + (FRAME_BYTES + ERROR_BYTES) * len(request.calls)
    excess = too_long(limits.result_bytes)
    answers = Stream(answer_fd, max_answer_bytes, max_answer_bytes, excess)
    log = Stream(log_fd, limits.log_bytes, MAX_PRINTED_BYTES, too_chatty)
    cpu_seconds = (ceil(limits.wall_seconds) + CPU_GRACE_SECONDS) * (os.cpu_count() or 1)
    cpu_seconds = min(cpu_seconds, MAX_CPU_SECONDS)
    bounds = {name: getattr(limits, name) for name in CHILD_LIMITS} | {"cpu_seconds": cpu_seconds}
    theirs = [theirs_request, theirs_answer, theirs_log]
    try:
        slot.order(bounds, theirs)
    finally:
        for fd in theirs:
            os.close(fd)
    questions.put(request.opening)
    return Execution(slot, limits, request, seconds, questions, answers, log)


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
