"""What evaluators say of a candidate beside its score, for the prompts of later attempts."""

import sys
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from costada.values.evaluation import FEEDBACK, UNSHOWN, Evaluation

MAX_FEEDBACK = 65_536
"""Characters of the feedback on one candidate that are kept."""

RENAMED = "reported_"
"""Prefix for a text of an evaluator whose name has a meaning of its own in CostAda."""

_LINES: ContextVar[list[str] | None] = ContextVar("costada_feedback", default=None)


def log(*values: object) -> None:
    """Add a line to the feedback on the text or output that is being evaluated.

    The model sees it beside the score in later prompts. Called outside of an evaluation, as when
    you try your function, it prints the line. A thread that your function starts has to run in a
    copy of its context (`contextvars.copy_context`).
    """
    line = " ".join(map(str, values))
    lines = _LINES.get()
    if lines is None:
        sys.stdout.write(f"{line}\n")
    else:
        lines.append(line)


@contextmanager
def collecting_feedback() -> Iterator[list[str]]:
    """Collect the lines that `log` is given within the block."""
    lines: list[str] = []
    token = _LINES.set(lines)
    try:
        yield lines
    finally:
        _LINES.reset(token)


def with_feedback(evaluation: Evaluation, lines: list[str]) -> Evaluation:
    """An evaluation with lines of feedback below what its evaluator reports as such."""
    if not lines:
        return evaluation
    known = evaluation.artifacts.get(FEEDBACK)
    text = "\n".join([*([known] if known else []), *lines])[:MAX_FEEDBACK]
    return replace(evaluation, artifacts={**evaluation.artifacts, FEEDBACK: text})


def reported_texts(texts: Mapping[str, str], taken: Container[str] = ()) -> dict[str, str]:
    """The texts that an evaluator reports, which may come from the candidate, by other names.

    Renamed are those of artifacts that tell the search something or that no model sees, and those
    that are taken.
    """
    return {
        f"{RENAMED}{name}" if name in UNSHOWN or name in taken else name: text
        for name, text in texts.items()
    }
