"""A guide's reply in, tactics out."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from costada.prompts.reply_parts import find_fences

SUCCESS_THRESHOLD = 1e-3
"""Rise of the best score above which the tactics of a batch count as a success."""

DEFAULT_TARGET = "score"

_LIST_START = re.compile(r"\[\s*\{")


def _join_sentences(value: object) -> object:
    """A list of sentences as one text, and anything else as it is."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return " ".join(value)
    return value


_Text = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1), BeforeValidator(_join_sentences)
]


class Tactic(BaseModel):
    """One idea from a guide.

    Attributes:
        idea: The idea in a sentence.
        description: How to implement it.
        approach_type: What it rests on, as `library.function`.
        what_to_optimize: The metric it should raise.
        cautions: What can go wrong; may be empty.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    idea: _Text
    description: _Text
    approach_type: _Text
    what_to_optimize: Annotated[
        str, BeforeValidator(lambda value: _join_sentences(value) or DEFAULT_TARGET)
    ] = DEFAULT_TARGET
    cautions: Annotated[str, BeforeValidator(lambda value: _join_sentences(value) or "")] = ""


@dataclass(frozen=True, slots=True)
class TriedTactic:
    """A tactic and its outcome, as the next guide is shown.

    Attributes:
        tactic: The tactic.
        improvement: Best score found from its guide to the last use of the batch, minus the best
            score before.
    """

    tactic: Tactic
    improvement: float

    @property
    def is_success(self) -> bool:
        """Whether the best score has risen by more than the threshold."""
        return self.improvement > SUCCESS_THRESHOLD

    @property
    def line(self) -> str:
        """The outcome in one line."""
        outcome = "SUCCESS" if self.is_success else "FAILED"
        tactic = self.tactic
        return (
            f"{outcome}: {tactic.approach_type} - {tactic.idea}"
            f" (improvement {self.improvement:+.4f})"
        )


def parse_tactics(reply: str, count: int) -> tuple[Tactic, ...]:
    """The first `count` valid tactics of a reply; none if there are none.

    Searched in this order: the whole reply, its json fences, its other fences, every list of
    objects in it. The first that holds a valid tactic is taken; entries that lack a required text
    are left out.

    Raises:
        ValueError: If `count` is below 1.
    """
    if count < 1:
        raise ValueError(f"count is {count}; expected at least 1")
    for value in _values(reply):
        if tactics := _tactics(value):
            return tuple(tactics[:count])
    return ()


def _values(reply: str) -> Iterator[object]:
    """Yield every JSON value the reply may consist of, the most likely first."""
    fences = sorted(find_fences(reply), key=lambda fence: fence.language != "json")
    for text in (reply, *(fence.text for fence in fences)):
        yield _decode(text.strip(), 0)
    # A list between sentences, which no fence marks.
    for start in _LIST_START.finditer(reply):
        yield _decode(reply, start.start())


def _decode(text: str, start: int) -> object:
    """The JSON value that begins there, or None if there is none."""
    try:
        # Not strict: models write line breaks into strings.
        value, _ = json.JSONDecoder(strict=False).raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return value


def _tactics(value: object) -> list[Tactic]:
    entries = value.get("ideas") if isinstance(value, dict) else value
    found = []
    for entry in entries if isinstance(entries, list) else []:
        with suppress(ValidationError):
            found.append(Tactic.model_validate(entry))
    return found
