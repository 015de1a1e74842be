"""The files of a candidate under the names that they have in the sandbox, and what forbids them."""

from collections.abc import Mapping
from dataclasses import dataclass

from costada.evaluators.sandbox.inside.candidate_process import CANDIDATE_FILE
from costada.evaluators.sandbox.limits import Limits
from costada.values.candidate import Program
from costada.values.evaluation import NOT_STORABLE, is_storable
from costada.values.program_form import files_fault


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
        if fault := files_fault(self.files):
            return f"the program has {fault}"
        if not all(map(is_storable, self.files.values())):
            return NOT_STORABLE
        size = sum(len(text) for text in self.encoded.values())
        if size > limits.source_bytes:
            what = "source has" if self.path else "files have together"
            return f"the {what} {size} bytes; expected at most {limits.source_bytes}"
        return None


def named_files(source: str | Program, file_name: str = CANDIDATE_FILE) -> NamedFiles:
    """The files of a program: one text under the name given, or files under their own paths."""
    if isinstance(source, str):
        return NamedFiles({file_name: source}, file_name)
    return NamedFiles(source, "")
