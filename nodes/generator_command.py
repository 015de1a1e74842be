"""A command as the generator: its text, and the words that it is run with."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Self

from costada.evaluators.sandbox.commands import filled_word, shell_sign_reason
from costada.evaluators.sandbox.helper_environment import helper_environment

ONE_ANSWER, WITH_TOOLS = "model", "agent"
"""The generators that are no commands: one response is one program, or the model calls tools."""

FILES = "{files}"
"""A word of its own, in place of which the command gets the path of each file."""

FIELDS = ("prompt", "model", "url")
"""What other words may hold in braces: the file of the prompt, the name of the model to ask for,
and the address of the endpoint."""


def is_command(generator: str) -> bool:
    """Whether the generator of some settings is a command."""
    return generator not in (ONE_ANSWER, WITH_TOOLS)


@dataclass(frozen=True, slots=True)
class GeneratorCommand:
    """A command that changes the files of a candidate in a copy.

    Attributes:
        words: Its words, with fields in braces.
    """

    words: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> Self:
        """Split a command as a shell does it, although no shell runs it.

        Raises:
            ValueError: It cannot be split, holds signs for a shell, or other fields than `FILES`
                and `FIELDS`.
        """
        expected = f"{ONE_ANSWER}, {WITH_TOOLS} or a command"
        try:
            words = tuple(shlex.split(text))
            if not words or "\0" in text:
                raise ValueError("no words" if not words else "a NUL character")
            for word in words:
                if word != FILES:
                    filled_word(word, dict.fromkeys(FIELDS, ""))
        except (KeyError, ValueError) as error:
            fields = ", ".join(f"{{{name}}}" for name in FIELDS)
            fault = f"unknown {{{error.args[0]}}}" if isinstance(error, KeyError) else error
            raise ValueError(
                f"expected {expected} with {fields}, or {FILES} as a word of its own ({fault});"
                " braces that stand for themselves are written twice"
            ) from None
        if reason := shell_sign_reason(text):
            raise ValueError(reason)
        return cls(words)

    @property
    def reads_stdin(self) -> bool:
        """Whether it gets its prompt on standard input, as no word names the file."""
        return not any("{prompt}" in word for word in self.words)

    def program(self) -> str:
        """The absolute path of its program.

        Raises:
            ValueError: There is no such program.
        """
        word = self.words[0]
        found = which(word, path=helper_environment().get("PATH"))
        if found is None:
            raise ValueError(
                f"generator: got {shlex.join(self.words)!r}, expected {ONE_ANSWER}, {WITH_TOOLS} or"
                f" a command of a program that is installed (found no {word!r})"
            )
        return os.path.abspath(found)

    def filled(self, *, prompt: Path, model: str, url: str, files: Sequence[str]) -> list[str]:
        """The words to run.

        Args:
            prompt: The file of the prompt.
            model: Name of the model to ask for.
            url: Address of the endpoint.
            files: Paths of the candidate's files.

        Raises:
            ValueError: There is no such program.
        """
        values = {"prompt": str(prompt), "model": model, "url": url}
        filled = [self.program()]
        for word in self.words[1:]:
            filled += files if word == FILES else [filled_word(word, values)]
        return filled
