"""What a prompt was made of, as plain data beside the text of its message."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

Source = str | Mapping[str, str]
"""A program as plain data: its text, or the text of each file by path."""

KEY = "costada"
"""Where the data stand in the `additional_kwargs` of a message, which no provider is sent."""


@dataclass(frozen=True, slots=True)
class PromptData:
    """What a prompt asks for, for models that compute their answers instead of reading English.

    Attributes:
        kind: `generation`, `guide`, `labels`, `insight` or `strategy`.
        program: What to change: the parent, a guide's incumbent, or the parent strategy.
        score: The parent's score.
        others: The inspirations.
        action: `exploration`, `exploitation` or `balanced`, also where a label asks for it.
        mode: `breakthrough` or `refinement`, of the tactic or of the tactics asked for; `user` for
            a tactic that a user gave; else "".
        approach: Approach type of the tactic; "" without one.
        idea: The tactic's idea and description.
        has_failure: Whether an attempt just before has failed.
        failed: Approach types of the tactics that have failed.
        facts: What is known of the population, by name.
        standings: One sentence on each strategy shown.
        language: Fence word of the language of a program of one text.
    """

    kind: str
    program: Source = ""
    score: float = 0.0
    others: Sequence[Source] = ()
    action: str = "balanced"
    mode: str = ""
    approach: str = ""
    idea: str = ""
    has_failure: bool = False
    failed: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    standings: Sequence[str] = ()
    language: str = "python"

    @property
    def kwargs(self) -> dict[str, object]:
        """The `additional_kwargs` of a message."""
        return {KEY: asdict(self)}


@dataclass(frozen=True, slots=True)
class TrialData:
    """The candidate that a tool evaluated: what its answer was made of."""

    candidate: str
    score: float

    @property
    def kwargs(self) -> dict[str, object]:
        """The `additional_kwargs` of a tool's message."""
        return {KEY: asdict(self)}


def prompt_data(kwargs: Mapping[str, object]) -> PromptData | None:
    """Data in the `additional_kwargs` of a message; None if there are none."""
    found = kwargs.get(KEY)
    return PromptData(**found) if isinstance(found, dict) and "kind" in found else None


def trial_data(kwargs: Mapping[str, object]) -> TrialData | None:
    """Data in the `additional_kwargs` of a tool's message; None if there are none."""
    found = kwargs.get(KEY)
    return TrialData(**found) if isinstance(found, dict) and "candidate" in found else None
