"""What passes between us and a candidate's process: without blocking, and no more than allowed."""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic

from costada.evaluators.sandbox.wire import LENGTH_BYTES

CHUNK_BYTES = 65536


@dataclass(slots=True)
class Stream:
    """One pipe; its beginning is kept.

    Attributes:
        fd: The reading end.
        kept_bytes: How much is kept.
        max_bytes: How much may come.
        excess: What to say if more comes.
    """

    fd: int
    kept_bytes: int
    max_bytes: int
    excess: str
    kept: bytearray = field(default_factory=bytearray)
    num_read: int = 0
    is_open: bool = True

    def read(self) -> None:
        """Take in what is there, at most one chunk."""
        with suppress(BlockingIOError):
            chunk = os.read(self.fd, CHUNK_BYTES)
            self.is_open = bool(chunk)
            self.num_read += len(chunk)
            self.kept += chunk[: self.kept_bytes - len(self.kept)]

    def drain(self) -> None:
        """Take in all that is there, as far as it is allowed."""
        before = -1
        while self.is_open and before != self.num_read <= self.max_bytes:
            before = self.num_read
            self.read()

    @property
    def passed(self) -> str | None:
        """What to say if more than allowed came; None if not."""
        return self.excess if self.num_read > self.max_bytes else None


class Questions:
    """One pipe to the candidate: the request, then the arguments of each call in its turn."""

    def __init__(self, fd: int) -> None:
        """Write to a descriptor, which is closed after the last of it."""
        self.fd = fd
        os.set_blocking(fd, False)
        self._rest = memoryview(b"")
        self._is_last = False
        self.is_open = True

    def put(self, message: bytes, *, is_last: bool = False) -> None:
        """Write a message, as far as there is room; the rest of the last is not wanted any more."""
        self._rest = memoryview(message)
        self._is_last = is_last
        self.write()

    @property
    def has_rest(self) -> bool:
        """Whether anything still has to be written."""
        return len(self._rest) > 0

    def write(self) -> None:
        """Write as much of the rest as there is room for; nothing to a reader that is gone."""
        with suppress(BlockingIOError):
            try:
                while self._rest:
                    self._rest = self._rest[os.write(self.fd, self._rest) :]
            except BrokenPipeError:
                self._rest = memoryview(b"")
        if self._is_last and not self._rest:
            self.close()

    def close(self) -> None:
        """Tell the reader that nothing more comes."""
        if self.is_open:
            os.close(self.fd)
        self.is_open = False


class Frames:
    """The result stream, cut into its messages as they arrive.

    Attributes:
        max_frames: How many may have come by now; no more are noted.
        arrivals: When each came, on the monotonic clock.
    """

    def __init__(self, stream: Stream, max_frames: int) -> None:
        """Read from a stream that keeps all that may come."""
        self._stream = stream
        self.max_frames = max_frames
        self._bounds: list[tuple[int, int]] = []
        self._start = 0
        self.arrivals: list[float] = []

    def update(self) -> None:
        """Note the frames that are complete by now, and the time (monotonic clock)."""
        kept = self._stream.kept
        while len(self._bounds) < self.max_frames:
            if len(kept) < (begin := self._start + LENGTH_BYTES):
                return
            end = begin + int.from_bytes(kept[self._start : begin], "big")
            if len(kept) < end:
                return
            self._bounds.append((begin, end))
            self.arrivals.append(monotonic())
            self._start = end

    @property
    def has_rest(self) -> bool:
        """Whether anything came after the last complete frame."""
        return len(self._stream.kept) > self._start

    @property
    def are_too_many(self) -> bool:
        """Whether anything came after the last frame that may come."""
        return len(self._bounds) == self.max_frames and self.has_rest

    @property
    def is_loaded(self) -> bool:
        """Whether the second frame, which tells why a program cannot be loaded, is empty."""
        begin, end = self._bounds[1]
        return begin == end

    def messages(self) -> list[memoryview]:
        """Return the messages of the complete frames, in order."""
        whole = memoryview(self._stream.kept)
        return [whole[begin:end] for begin, end in self._bounds]
