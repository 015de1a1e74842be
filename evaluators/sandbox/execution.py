"""Runs one candidate in one slot, stops it in time, and keeps what it answers and prints."""

import json
import os
import select
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from math import ceil, inf
from time import monotonic
from typing import TypeVar

from costada.evaluators.sandbox.codec import LENGTH_BYTES, encode, framed
from costada.evaluators.sandbox.concurrency import (
    CANCELLED,
    CancellationToken,
    active_tokens,
    is_cancelled,
)
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits
from costada.evaluators.sandbox.model_channel import ENVIRONMENT, Connect, ModelChannel
from costada.evaluators.sandbox.slot import SLOTS, Pool, Slot
from costada.evaluators.sandbox.slot_kind import SlotKind

Answer = TypeVar("Answer")
CHUNK_BYTES = 65536
MAX_PRINTED_BYTES = 64 * MEBIBYTE
CPU_GRACE_SECONDS = 5
GRACE_SECONDS = 2.0
SIGNAL_SECONDS = 0.2
"""How long after a program has been terminated this process may still get the same signal."""

TERMINATED = (-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT)
"""Statuses of programs, also of those that a shell or a supervisor reports."""

FRAME_BYTES = 256  # room for the frame of each answer beside its data
ERROR_BYTES = 8192  # room for an error in place of an answer, however short answers must be
MAX_WAIT_SECONDS = 3600.0  # longer timeouts overflow in a selector
MAX_ATTEMPTS = 3
MAX_CPU_SECONDS = 2**31
NUM_CORES = os.cpu_count() or 1  # asking the system takes longer than all else in an order

NUM_OPENING_FRAMES = 2  # one before the program is loaded, one after; then comes one for each call
CHILD_LIMITS = ("memory_mb", "scratch_mb", "threads", "processes")
TOO_MANY_FRAMES = "malformed answer: more than was asked for"


@dataclass(frozen=True, slots=True)
class Request:
    """What a worker is asked: what it reads before it loads the program, then for each call.

    A request to run a command has no calls: the worker becomes the program, which reads the rest
    of the opening and writes to the same pipe as the worker. If it is a build, its files are put
    aside; a request that comes after a build starts with a copy of them.
    """

    opening: bytes
    calls: tuple[bytes, ...] = ()
    is_command: bool = False
    may_execute: bool = False  # whether the worker starts programs in other languages
    is_build: bool = False
    has_built: bool = False  # whether a build came before
    evaluates: bool = False  # whether the worker runs the evaluator of a folder
    is_apart: bool = False  # whether it runs a command that confines what it starts
    connect: Connect | None = None  # serves the connections to its models; None: it has none


def request_for(
    files: Mapping[str, bytes],
    call: Mapping[str, object],
    calls: Sequence[Mapping[str, object]],
    connect: Connect | None = None,
) -> Request:
    """The request to load a program as `call` says, and to call it.

    See `inside/candidate_process.py` for what `call` may hold. `connect` serves the connections to
    its models, if it has any.

    Raises:
        ValueError: If an argument of a call is not plain data.
    """
    sizes = {path: len(text) for path, text in files.items()}
    environment = {} if connect is None else {"environment": ENVIRONMENT}
    head = json.dumps({**call, **environment, "files": sizes}).encode()
    opening = framed(framed(head) + b"".join(files.values()))
    messages = tuple(framed(encode(dict(arguments))) for arguments in calls)
    return Request(opening, messages, connect=connect)


@dataclass(slots=True)
class Stream:
    """A pipe that is read without blocking; its beginning is kept."""

    fd: int
    kept_bytes: int
    max_bytes: int  # how much may come
    reason: str  # why the run is stopped if more comes
    kept: bytearray = field(default_factory=bytearray)
    num_read: int = 0
    is_open: bool = True

    def read(self) -> None:
        """Read what is there, at most one chunk."""
        with suppress(BlockingIOError):
            chunk = os.read(self.fd, CHUNK_BYTES)
            self.is_open = bool(chunk)
            self.num_read += len(chunk)
            self.kept += chunk[: self.kept_bytes - len(self.kept)]

    def drain(self) -> None:
        """Read all that is there, as far as it is allowed."""
        before = -1
        while self.is_open and before != self.num_read <= self.max_bytes:
            before = self.num_read
            self.read()

    @property
    def excess(self) -> str | None:
        """The reason if more than allowed came; None if not."""
        return self.reason if self.num_read > self.max_bytes else None


class RequestPipe:
    """The pipe to the candidate: the request, then the arguments of each call in its turn."""

    def __init__(self, fd: int) -> None:
        """Write to a descriptor, which is closed after the last message."""
        self.fd = fd
        os.set_blocking(fd, False)
        self._rest = memoryview(b"")
        self._is_last = False
        self.is_open = True

    def put(self, message: bytes, *, is_last: bool = False) -> None:
        """Write what fits of a message, which replaces the rest of the previous one."""
        self._rest = memoryview(message)
        self._is_last = is_last
        self.write()

    @property
    def has_rest(self) -> bool:
        """Whether anything still has to be written."""
        return len(self._rest) > 0

    def write(self) -> None:
        """Write what fits of the rest; drop it if the reader has closed the pipe."""
        with suppress(BlockingIOError):
            try:
                while self._rest:
                    self._rest = self._rest[os.write(self.fd, self._rest) :]
            except BrokenPipeError:
                self._rest = memoryview(b"")
        if self._is_last and not self._rest:
            self.close()

    def close(self) -> None:
        """Close the pipe: nothing more comes."""
        if self.is_open:
            os.close(self.fd)
        self.is_open = False


@dataclass(slots=True)
class AnswerStream(Stream):
    """The result pipe; all that may come is kept, and split into messages as it arrives."""

    max_frames: int = NUM_OPENING_FRAMES  # how many may have come by now; no more are noted
    arrivals: list[float] = field(default_factory=list)  # of the frames, on the monotonic clock
    bounds: list[tuple[int, int]] = field(default_factory=list)

    def split_frames(self) -> None:
        """Record the frames that are complete by now, and the time."""
        while len(self.bounds) < self.max_frames:
            start = self._end
            if len(self.kept) < (begin := start + LENGTH_BYTES):
                return
            end = begin + int.from_bytes(self.kept[start:begin], "big")
            if len(self.kept) < end:
                return
            self.bounds.append((begin, end))
            self.arrivals.append(monotonic())

    @property
    def _end(self) -> int:
        return self.bounds[-1][1] if self.bounds else 0

    @property
    def has_rest(self) -> bool:
        """Whether anything came after the last complete frame."""
        return len(self.kept) > self._end

    @property
    def rest(self) -> bytes:
        """What came after the last complete frame."""
        return bytes(memoryview(self.kept)[self._end :])

    @property
    def has_too_many(self) -> bool:
        """Whether anything came after the last frame that may come."""
        return len(self.bounds) == self.max_frames and self.has_rest

    @property
    def is_loaded(self) -> bool:
        """Whether the second frame, which holds why a program cannot be loaded, is empty."""
        begin, end = self.bounds[1]
        return begin == end

    def messages(self) -> list[memoryview]:
        """The messages of the complete frames, in order."""
        whole = memoryview(self.kept)
        return [whole[begin:end] for begin, end in self.bounds]


Source = Stream | Slot | ModelChannel | CancellationToken
"""What an execution waits for by its descriptor, beside room in the request pipe."""


def too_slow(seconds: float) -> str:
    """Why a program that exceeded the wall limit is stopped."""
    return f"timeout: the program exceeded {seconds:g} s"


def too_long(max_bytes: int, verb: str = "returned") -> str:
    """The reason for refusing an answer that is longer than allowed."""
    return f"the program {verb} more than {max_bytes} bytes"


@dataclass(slots=True)
class Execution:
    """The state of a candidate's run; times are on the monotonic clock."""

    slot: Slot
    limits: Limits
    request: Request
    seconds: float  # what is left of the wall limit
    requests: RequestPipe
    answers: AnswerStream
    log: Stream
    channel: ModelChannel | None = None
    started: float = field(default_factory=monotonic)
    asked: list[float] = field(default_factory=list)  # when each call's arguments were sent
    stopped: str | None = None  # why it was stopped
    stop_end: float = 0.0  # when it must be over after it was stopped
    ended: float = 0.0  # when its end was reported, or given up
    status: int | None = None  # exit status, negative for a signal, once the slot reports it
    exited: float = 0.0  # when the worker ended, as its server saw it; 0 if that is lost
    exceeded: str | None = None  # the limit that the slot saw it exceed, in words
    is_slot_lost: bool = False  # whether the slot died or does not react
    num_in_time: int | None = None  # how many calls were over when one exceeded its time

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.status is not None or self.is_slot_lost

    @property
    def is_killed_early(self) -> bool:
        """Whether a signal ended the worker before the program, though nothing stopped it."""
        was_killed = self.status is not None and self.status < 0 and self.stopped is None
        return was_killed and not self.answers.arrivals

    @property
    def ends_by_signal(self) -> bool:
        """Whether a signal to all processes of a job may have ended it, not only to this one."""
        return self.stopped is None and (self.is_slot_lost or self.status in TERMINATED)

    @property
    def deadline(self) -> float:
        """When the current call, the run or its stop must be over."""
        if self.stopped is not None:
            return self.stop_end
        return min(self.started + self.seconds, self._call_end)

    @property
    def _call_end(self) -> float:
        """When the current call must be answered or, after the last call, the process must end."""
        if self.limits.call_seconds is None or not self.asked:
            return inf
        return self.asked[-1] + self.limits.call_seconds

    def update(self) -> None:
        """Record the answers that have arrived, and send the next call if it is due."""
        self.answers.split_frames()
        if excess := self.answers.excess or self.log.excess:
            self.stop(excess)
        if self.channel and (excess := self.channel.excess):
            self.stop(excess)
        if self.answers.has_too_many and not self.request.is_command:
            self.stop(TOO_MANY_FRAMES)
        num_asked, num_calls = len(self.asked), len(self.request.calls)
        is_answered = len(self.answers.arrivals) == NUM_OPENING_FRAMES + num_asked
        is_running = self.stopped is None and not self.has_ended
        if is_answered and num_asked < num_calls and is_running and self.answers.is_loaded:
            self.asked.append(monotonic())
            self.answers.max_frames += 1
            self.requests.put(self.request.calls[num_asked], is_last=num_asked + 1 == num_calls)

    def expire(self) -> None:
        """The deadline has passed: stop, or give up a slot that does not stop."""
        if self.stopped is not None:
            self.is_slot_lost = True
        elif self._call_end < self.started + self.seconds:
            self.num_in_time = len(self.asked) - 1
            self.stop(f"timeout: the call exceeded {self.limits.call_seconds:g} s")
        else:
            self.stop(too_slow(self.limits.wall_seconds))

    def stop(self, reason: str) -> None:
        """Cancel the run; the first reason counts."""
        if self.stopped is None:
            self.stopped = reason
            self.stop_end = monotonic() + GRACE_SECONDS
            self.slot.cancel()

    def end(self) -> None:
        """Take the slot's answer."""
        answer = self.slot.answer()
        if answer is None:
            self.is_slot_lost = True
        else:
            self.status, self.exceeded = answer.status, answer.exceeded
            # As the server saw it: here, the time until this thread runs again would count too.
            self.exited = answer.ended
            # The end may be reported before all that was written ahead of it has been read.
            self.answers.drain()
            self.log.drain()


def execute(slot: Slot, request: Request, limits: Limits, seconds: float) -> Execution:
    """Carry out a request in a fresh worker of the slot; nothing of it is alive afterwards.

    A slot that is lost on the way, or left by an exception, has been destroyed.

    Raises:
        BrokenPipeError: If the slot was lost before, or something killed the worker as it waited.
        InterruptedError: If the evaluation was cancelled.
        OSError: If pipes cannot be made.
    """
    with ExitStack() as unless_ended, ExitStack() as stack:
        unless_ended.callback(slot.destroy)  # its candidate may still be running
        order = _order_of(limits, request)
        execution = _begin(slot, request, limits, order, seconds, stack)
        sources: dict[int, Source] = {
            stream.fd: stream for stream in (execution.answers, execution.log)
        }
        sources[slot.control.fileno()] = slot
        sources |= {token.fileno(): token for token in active_tokens()}
        if execution.channel:
            sources[execution.channel.fileno()] = execution.channel
        # Not a selector, which takes more time to set up than all waiting for a short program.
        ready = select.poll()
        for fd in sources:
            ready.register(fd, select.POLLIN)
        while not execution.has_ended:
            _process_events(execution, ready, sources)
        execution.ended = monotonic()
        # After a command, the next order may differ: a build is followed by calls of what it built.
        if not (execution.is_slot_lost or request.is_command):
            # Before the result is read and scored, so that both take place at the same time.
            slot.prepare(order)
        unless_ended.pop_all()
    # Ctrl-C reaches candidates as well as this process, perhaps earlier: no fault of theirs.
    if execution.ends_by_signal and is_cancelled(SIGNAL_SECONDS):
        slot.destroy()
        raise InterruptedError(CANCELLED)
    if execution.is_slot_lost:
        slot.destroy()
        if not execution.answers.arrivals and execution.stopped is None:
            raise BrokenPipeError("the slot was lost before the program began")
    if execution.is_killed_early:
        raise BrokenPipeError("the process was killed before the program began")
    if execution.stopped == CANCELLED:
        raise InterruptedError(CANCELLED)
    return execution


def execute_in_any(
    kind: SlotKind,
    request: Request,
    limits: Limits,
    seconds: float,
    *,
    needs_all: bool = False,
    slots: Pool = SLOTS,
) -> Execution:
    """Execute in any slot of a kind; a slot killed before the program begins is replaced.

    `needs_all` says that the program names what a slot loads late. Waiting for a slot takes nothing
    from `seconds`.

    Raises:
        InterruptedError: If the evaluation was cancelled.
        OSError: If pipes or folders cannot be made.
        RuntimeError: If no slot starts, with the reason.
    """

    def carry_out(slot: Slot) -> Execution:
        if needs_all:
            slot.load_all()
        return execute(slot, request, limits, seconds)

    return in_any_slot(kind, carry_out, slots)


def in_any_slot(kind: SlotKind, use: Callable[[Slot], Answer], slots: Pool) -> Answer:
    """What `use` makes of a slot; if it raises a BrokenPipeError, of another slot.

    Raises:
        RuntimeError: If no slot starts, with the reason.
    """
    for _ in range(MAX_ATTEMPTS):
        with suppress(BrokenPipeError), slots.acquire(kind) as slot:
            return use(slot)
    raise RuntimeError(
        f"sandbox: the process for candidates ({kind.layer}) was killed {MAX_ATTEMPTS} times, while"
        " it was idle or starting: something outside kills it, or the machine is out of memory"
    )


def _process_events(
    execution: Execution, ready: select.poll, sources: Mapping[int, Source]
) -> None:
    """Wait for the next event or the deadline, and handle it."""
    if (remaining := execution.deadline - monotonic()) <= 0:
        execution.expire()
        return
    requests = execution.requests
    # Registered only while something is left to write: a pipe with room is always ready.
    if is_writing := requests.has_rest:
        ready.register(requests.fd, select.POLLOUT)
    events = ready.poll(ceil(1000 * min(remaining, MAX_WAIT_SECONDS)))
    if is_writing:
        ready.unregister(requests.fd)
    for fd, _ in events:
        source = sources.get(fd)
        if isinstance(source, Stream):
            source.read()
            if not source.is_open:
                ready.unregister(fd)
        elif source is None:
            requests.write()
        elif isinstance(source, Slot):
            execution.end()
        elif isinstance(source, ModelChannel):
            source.process()
            if not source.is_open:
                ready.unregister(fd)
        else:
            ready.unregister(fd)
            execution.stop(CANCELLED)
    execution.update()


def _begin(
    slot: Slot,
    request: Request,
    limits: Limits,
    order: dict[str, int],
    seconds: float,
    stack: ExitStack,
) -> Execution:
    """Order a worker; the stack closes our ends of its pipes."""
    pipes = slot.begin(order)
    requests = RequestPipe(pipes.request_fd)
    stack.callback(requests.close)
    channel = None
    if pipes.channel_fd is not None and request.connect is not None:
        channel = ModelChannel(pipes.channel_fd, request.connect)
        stack.callback(channel.close)
    for fd in (pipes.answer_fd, pipes.log_fd):
        stack.callback(os.close, fd)
        os.set_blocking(fd, False)
    max_answer_bytes = limits.result_bytes + (FRAME_BYTES + ERROR_BYTES) * len(request.calls)
    reason = too_long(limits.result_bytes, "wrote" if request.is_command else "returned")
    answers = AnswerStream(pipes.answer_fd, max_answer_bytes, max_answer_bytes, reason)
    too_chatty = f"the program printed more than {MAX_PRINTED_BYTES // MEBIBYTE} MB"
    log = Stream(pipes.log_fd, limits.log_bytes, MAX_PRINTED_BYTES, too_chatty)
    requests.put(request.opening, is_last=request.is_command)
    return Execution(slot, limits, request, seconds, requests, answers, log, channel)


def _order_of(limits: Limits, request: Request) -> dict[str, int]:
    """The limits that hold inside; see `Order`."""
    cpu_seconds = (ceil(limits.wall_seconds) + CPU_GRACE_SECONDS) * NUM_CORES
    order = {name: getattr(limits, name) for name in CHILD_LIMITS}
    order["cpu_seconds"] = min(cpu_seconds, MAX_CPU_SECONDS)
    wanted = {
        "may_execute": request.is_command or request.may_execute or request.evaluates,
        "evaluates": request.evaluates,
        "is_apart": request.is_apart,
        "keeps_files": request.is_build,
        "has_built": request.has_built,
        "has_models": request.connect is not None,
    }
    return order | {name: 1 for name, is_wanted in wanted.items() if is_wanted}
