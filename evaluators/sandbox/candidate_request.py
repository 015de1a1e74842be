"""What a worker is asked: the files of a candidate, how to load it, and the calls of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costada.evaluators.sandbox.codec import LENGTH_BYTES, encode
from costada.evaluators.sandbox.inside.orders import CANDIDATE_FILE
from costada.evaluators.sandbox.limits import Limits
from costada.values.candidate import Program
from costada.values.evaluation import NOT_STORABLE, is_storable
from costada.values.program_form import invalid_files_reason


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """The files of a candidate, text by relative path.

    Attributes:
        files: Text by path below the working folder.
        path: The path of the only file; empty for that of the folder, if there may be several.
    """

    files: Mapping[str, str]
    path: str

    @property
    def encoded(self) -> dict[str, bytes]:
        """The files as they are written."""
        return {path: text.encode() for path, text in self.files.items()}

    def fault(self, limits: Limits) -> str | None:
        """Why they cannot be written into a sandbox with these limits; None if they can."""
        if fault := invalid_files_reason(self.files):
            return f"the program has {fault}"
        if not all(map(is_storable, self.files.values())):
            return NOT_STORABLE
        size = sum(len(text) for text in self.encoded.values())
        if size > limits.source_bytes:
            what = "source has" if self.path else "files have together"
            return f"the {what} {size} bytes; expected at most {limits.source_bytes}"
        return None


def named_files(source: str | Program, file_name: str = CANDIDATE_FILE) -> NamedFiles:
    """The files of a program: one string under the name given, or files under their own paths."""
    if isinstance(source, str):
        return NamedFiles({file_name: source}, file_name)
    return NamedFiles(source, "")


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


def request_for(
    files: Mapping[str, bytes], call: Mapping[str, object], calls: Sequence[Mapping[str, object]]
) -> Request:
    """The request to load a program as `call` says, and to call it.

    See `inside/candidate_process.py` for what `call` may hold.

    Raises:
        ValueError: If an argument of a call is not plain data.
    """
    sizes = {path: len(text) for path, text in files.items()}
    opening = framed(framed(encode({**call, "files": sizes})) + b"".join(files.values()))
    return Request(opening, tuple(framed(encode(dict(arguments))) for arguments in calls))


def framed(message: bytes) -> bytes:
    """A message behind its length."""
    return len(message).to_bytes(LENGTH_BYTES, "big") + message
