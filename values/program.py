"""A program: the files of a candidate, text by relative path."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Self

MAIN_FILE = "program.py"
"""Path of the one file that a program has today."""


@lru_cache(maxsize=64)
def text_hash(text: str) -> str:
    """Name of a stored text; a step asks for the same few again and again."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Program(Mapping[str, str]):
    """The files of a candidate (p_t), text by relative path.

    Attributes:
        files: Path and text of each file.
    """

    files: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, text: str) -> Self:
        """A program of one file."""
        return cls(((MAIN_FILE, text),))

    def __getitem__(self, path: str) -> str:
        return dict(self.files)[path]

    def __iter__(self) -> Iterator[str]:
        return (path for path, _ in self.files)

    def __len__(self) -> int:
        return len(self.files)

    @property
    def text(self) -> str:
        """Text of the program's only file."""
        ((_, text),) = self.files
        return text

    @property
    def hash(self) -> str:
        """Name under which a store keeps the program."""
        return text_hash(self.text)
