"""Numbers in words: things counted, and shares that may be beyond all reason."""

LARGEST_COUNT = 10**9
LARGEST_SHARE = 1_000.0


def counted(number: int, thing: str) -> str:
    """Return a number of things: `1 run`, `2 runs`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def count(number: int) -> str:
    """Return a number with commas, or with few digits where nobody would count them."""
    return f"{number:,}" if number < LARGEST_COUNT else f"{number:g}"


def percent(share: float) -> str:
    """Return a share in percent, with few digits where nobody would read them all."""
    return f"{share:.2%}" if share < LARGEST_SHARE else f"{100 * share:g}%"
