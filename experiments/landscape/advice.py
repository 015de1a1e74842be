"""The simulated model as a guide: three tactics that name approaches, better than by chance."""

import json
import re
from random import Random

from costada.experiments.landscape.landscape import Landscape

TACTICS_PER_ANSWER = 3

PROMISING_ODDS = 2.0
"""How many times as likely a guide names an approach whose ceiling lies above the best score; an
assumption: it knows something, but is no oracle."""

REFINEMENTS = ("start", "constraints", "polish")
"""What refinement tactics are called; each keeps the approach of the program."""

_NAMED = re.compile(r"landscape\.approach_(\d{1,2})", re.ASCII)


def named_approaches(
    landscape: Landscape, current: int, best_score: float, rng: Random
) -> tuple[int, ...]:
    """Return the approaches that three breakthrough tactics name, all different.

    Args:
        landscape: The instance.
        current: Approach of the best program, which is not named.
        best_score: Score of that program.
        rng: Source of randomness.
    """
    weights = {
        number: PROMISING_ODDS if approach.ceiling > best_score else 1.0
        for number, approach in enumerate(landscape.approaches)
        if number != current
    }
    keys = {number: rng.expovariate(weight) for number, weight in weights.items()}
    return tuple(sorted(keys, key=keys.__getitem__)[:TACTICS_PER_ANSWER])


def breakthrough_reply(approaches: tuple[int, ...]) -> str:
    """Return the JSON of tactics that name approaches."""
    return _reply([(f"Take approach {each}.", f"landscape.approach_{each}") for each in approaches])


def refinement_reply() -> str:
    """Return the JSON of tactics that keep the approach."""
    return _reply([(f"Carry it further: {each}.", f"landscape.{each}") for each in REFINEMENTS])


def named_approach(approach_type: str) -> int | None:
    """Return the number of the approach that a tactic names, None if it names none."""
    match = _NAMED.fullmatch(approach_type)
    return int(match[1]) if match else None


def _reply(ideas: list[tuple[str, str]]) -> str:
    records = [
        {
            "idea": idea,
            "description": "Change the numbers of the program accordingly.",
            "what_to_optimize": "score",
            "cautions": "",
            "approach_type": approach_type,
        }
        for idea, approach_type in ideas
    ]
    return json.dumps({"ideas": records}, indent=2)
