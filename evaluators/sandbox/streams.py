"""Reads what comes from a candidate's process: without blocking, and no more than allowed."""

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


class Frames:
    """The result stream, cut into its messages as they arrive."""

    def __init__(self, stream: Stream, max_frames: int) -> None:
        """Read from a stream that keeps all that may come; no more frames are noted."""
        self._stream = stream
        self._max_frames = max_frames
        self._bounds: list[tuple[int, int]] = []
        self._start = 0
        self.arrivals: list[float] = []

    def update(self) -> None:
        """Note the frames that are complete by now, and the time (monotonic clock)."""
        kept = self._stream.kept
        while len(self._bounds) < self._max_frames:
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
        return len(self._bounds) == self._max_frames and self.has_rest

    def messages(self) -> list[memoryview]:
        """Return the messages of the complete frames, in order."""
        whole = memoryview(self._stream.kept)
        return [whole[begin:end] for begin, end in self._bounds]
