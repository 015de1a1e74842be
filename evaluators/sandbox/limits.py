"""How much one run of a candidate may take."""

from dataclasses import dataclass
from math import isfinite

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run; they hold for the candidate's process, not for the whole search.

    Attributes:
        wall_seconds: Time from start to answer, on the monotonic clock.
        memory_mb: Address space the candidate may add to a bare interpreter, in MiB.
        log_bytes: How much of standard output and error is kept.
        source_bytes: Longest source text accepted, in UTF-8.
        result_bytes: Longest answer accepted.
    """

    wall_seconds: float
    memory_mb: int = 2048
    log_bytes: int = 65536
    source_bytes: int = MEBIBYTE
    result_bytes: int = 64 * MEBIBYTE

    def __post_init__(self) -> None:
        """Refuse limits that are not positive numbers.

        Raises:
            ValueError: Naming the limit, its value and what was expected.
        """
        if not isfinite(self.wall_seconds) or self.wall_seconds <= 0:
            raise ValueError(f"wall_seconds is {self.wall_seconds!r}; expected a positive number")
        for name in ("memory_mb", "log_bytes", "source_bytes", "result_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected at least 1")
