"""An exception of a candidate in words a model can act on: its own frames and nothing else.

Runs in the candidate's process, loaded by path; imports nothing of ours.
"""

import errno
import os
import traceback
from collections.abc import Container, Mapping
from types import TracebackType
from typing import NamedTuple

MAX_MESSAGE_CHARS = 2000
MAX_FRAMES = 8
MAX_LINE_CHARS = 200
REFUSALS = (errno.EACCES, errno.ENOSYS, errno.EPERM, errno.EROFS)
POLICY = (
    "(programs may not start processes, share memory, use the network, or touch files outside their"
    " working folder)"
)

Place = tuple[str, int, str]
"""File name, line and function of one frame."""


class File(NamedTuple):
    """What an error may tell of a file: the name to tell it under, and its text."""

    name: str
    text: str


def describe(error: BaseException, files: Mapping[str, File], limits: Mapping[str, int]) -> str:
    """Return what happened and where.

    Args:
        error: The exception that ended the candidate.
        files: The files whose frames are told, by full path.
        limits: The limits of the run; the one that was passed is named.
    """
    words = _Words(type(error).__name__)
    with words:
        words.text = _in_words(error, limits)
    text = words.text
    places = _places(error.__traceback__, files)[-MAX_FRAMES:]
    return "\n".join([_shorten(_rename(text, files)), *(_tell(p, files) for p in places)])


def out_of_memory(memory_mb: int) -> str:
    """Return what is said of a program that passed its memory limit."""
    return f"MemoryError: out of memory, the limit is {memory_mb} MB"


class _Words:
    """What is said of an error; its name alone if its own code fails in telling more."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __enter__(self) -> None:
        """Begin to tell."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> bool:
        return not isinstance(error, MemoryError)


def _in_words(error: BaseException, limits: Mapping[str, int]) -> str:
    if isinstance(error, MemoryError):
        traceback.clear_frames(error.__traceback__)
        return out_of_memory(limits["memory_mb"])
    if isinstance(error, SystemExit):
        return f"SystemExit: the program called exit ({error.code!r}) instead of returning"
    text = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, OSError) and error.errno in REFUSALS:
        return f"{text}\n{POLICY}"
    if isinstance(error, OSError) and error.errno in (errno.EFBIG, errno.ENOSPC):
        return f"{text}\n(the limit of the program's files is {limits['scratch_mb']} MB)"
    return text


def concerns(error: BaseException, filename: str) -> bool:
    """Return whether the exception arose in, or by calling, the code of the file given."""
    if isinstance(error, SyntaxError) and error.filename == filename:
        return True
    return bool(_places(error.__traceback__, [filename]))


def _places(trace: TracebackType | None, filenames: Container[str]) -> list[Place]:
    return [
        (frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(trace)
        if frame.f_code.co_filename in filenames
    ]


def _tell(place: Place, files: Mapping[str, File]) -> str:
    filename, line, function = place
    lines = files[filename].text.splitlines()
    text = lines[line - 1].strip()[:MAX_LINE_CHARS] if line <= len(lines) else ""
    where = f'  File "{files[filename].name}", line {line}, in {function}'
    return f"{where}\n    {text}" if text else where


def _rename(text: str, files: Mapping[str, File]) -> str:
    for filename, file in files.items():
        text = text.replace(filename, file.name).replace(os.path.dirname(filename) + os.sep, "")
    return text


def _shorten(text: str) -> str:
    if len(text) <= MAX_MESSAGE_CHARS:
        return text
    half = MAX_MESSAGE_CHARS // 2
    return f"{text[:half]} ... {text[-half:]}"
