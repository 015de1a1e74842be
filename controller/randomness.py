"""Where the randomness of a run comes from."""

from random import Random


def draws(seed: int, iteration: int, purpose: str) -> Random:
    """Return the random numbers for one purpose in one iteration, the same on every execution."""
    return Random(f"{seed}/{iteration}/{purpose}")
