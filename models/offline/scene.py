"""What an edit gets to work with, and what every kind of edit looks like."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from costada.models.offline.source import Edit, Program


@dataclass(frozen=True, slots=True)
class Scene:
    """The programs of one prompt.

    Attributes:
        program: The program to change.
        others: The other programs shown.
        is_bold: Whether the prompt asks for something unlike the program, not for polish.
    """

    program: Program
    others: tuple[Program, ...] = ()
    is_bold: bool = False


EditKind = Callable[[Scene, Random], Edit | None]
"""An edit of one kind; None where the program offers no place for it."""
