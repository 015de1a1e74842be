"""What decides the result of a run besides method and seed, stored with it as texts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from costada.store.read_limits import parsed

LONGEST = 80
"""Characters of a fact; a longer one is replaced by its hash."""

LONGEST_SHOWN = 200
"""Characters of a malformed setup that an error shows."""


@dataclass(frozen=True, slots=True)
class RunSetup:
    """What decides the result of a run besides method and seed, as it was when the run began.

    Attributes:
        problem: Facts of the problem and its evaluator, as texts by name.
        settings: Likewise of the models and all settings.
    """

    problem: Mapping[str, str]
    settings: Mapping[str, str]

    @classmethod
    def read(cls, text: str) -> "RunSetup":
        """The setup that a run file holds as JSON.

        Raises:
            ValueError: It is malformed, or lacks what every reader needs.
        """
        known = parsed(text)
        match known:
            case {"problem": {"name": str(), "direction": str()} as problem, "settings": dict()}:
                parts = (problem, known["settings"])
                if all(isinstance(each, str) for part in parts for each in part.values()):
                    return cls(*parts)
        raise ValueError(f"setup of the run is {text[:LONGEST_SHOWN]!r}; expected facts as texts")


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """In words which facts are no longer what they were."""
    names = sorted({*before, *now})
    return [
        f"{name} was {before.get(name, 'not set')}, is {now.get(name, 'not set')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def as_texts(facts: Mapping[str, object]) -> dict[str, str]:
    """Plain values as texts, those of a mapping under names with dots; none for `None`."""
    texts: dict[str, str] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            texts |= {f"{name}.{inner}": text for inner, text in as_texts(_by_text(value)).items()}
        elif value is not None:
            texts[name] = _text(value)
    return texts


def _by_text(values: Mapping[object, object]) -> dict[str, object]:
    return {str(name): value for name, value in values.items()}


def _text(value: object) -> str:
    plain = json.dumps(value, default=lambda odd: f"a {type(odd).__name__}", sort_keys=True)
    text = str(value) if isinstance(value, str) and value.isprintable() else plain
    return text if len(text) <= LONGEST else sha256(plain.encode()).hexdigest()[:16]
