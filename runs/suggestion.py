"""The text that answers a misspelt name."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return a sentence saying that `name` is unknown, with the nearest known name if any.

    Args:
        kind: What was named, for example "preset".
        name: The name as given.
        known: Every name that would have been accepted.
    """
    names = sorted(known)
    nearest = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    proposal = f"Did you mean '{nearest[0]}'? " if nearest else ""
    return f"Unknown {kind} '{name}'. {proposal}Known: {', '.join(names)}."
