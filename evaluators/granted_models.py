"""The models that a problem asks during one evaluation, as its caller offers them.

Functions of a problem that asks models are called in a process of their own: it holds no key, and
finds the models at the address in its environment.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from socket import socket
from typing import Any, Literal, Protocol

from costada.values.evaluation import Evaluation

FunctionName = Literal["score", "holdout", "score_example", "evaluate"]


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """The call of a function of a problem.

    Attributes:
        name: `holdout` for the score of held-out inputs.
        known: Its further arguments by name, beside what it judges.
    """

    name: FunctionName
    known: Mapping[str, Any] = field(default_factory=dict)


FunctionCaller = Callable[[FunctionCall, object], Evaluation]
"""Calls a function with an output, or with a program's text."""


class GrantedModels(Protocol):
    """What an evaluation may ask, until it ends."""

    def connect(self, *, is_shared: bool) -> Callable[[socket], None] | None:
        """What serves the connections of a sandbox; `None` if its programs may ask no model.

        Where evaluator and candidate share a process (`is_shared`), it reaches the models of both.
        """

    def call(self, problem: Any, called: FunctionCall, output: object) -> Evaluation:
        """What a function of a problem says of an output, or of a program's text.

        Raises:
            InterruptedError: If the evaluation was cancelled.
        """


class SendableModels(GrantedModels, Protocol):
    """What an evaluation may ask that this process, or a worker in its place, makes."""

    def for_worker(self, host: str, port: int) -> "SentModels":
        """What is sent to a worker that evaluates in the place of this process.

        Args:
            host: Address of this machine, as the worker reaches it.
            port: Where it is listened there; 0 for a free one.

        Raises:
            OSError: This machine does not have the address, or the port is taken.
        """


class ModelsUnreachable(OSError):
    """A worker cannot reach the models of the run."""


class SentModels(Protocol):
    """What an evaluation in a worker may ask, as it is sent there: it can be pickled."""

    def attempt(self) -> AbstractContextManager[GrantedModels]:
        """What an attempt at the evaluation may ask until the block ends.

        Workers may be lost: each attempt asks as the first one did, and is answered likewise.

        Raises:
            ModelsUnreachable: If the run cannot be reached from here.
        """


def model_descriptions(models: Mapping[str, object]) -> dict[str, object]:
    """Models as plain values: how they were written, and objects by class and name."""
    return {
        name: given if isinstance(given, str | Mapping) else _description(given)
        for name, given in models.items()
    }


def _description(given: object) -> str:
    model = next(
        (
            found
            for each in ("model_name", "model", "name")
            if (found := getattr(given, each, None))
        ),
        "",
    )
    return f"{type(given).__name__} {model}" if isinstance(model, str) else type(given).__name__
