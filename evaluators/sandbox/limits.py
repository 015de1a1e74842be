"""How much one evaluation of a candidate may take."""

from dataclasses import dataclass
from math import ceil, inf

MEBIBYTE = 1024 * 1024
MAX_LIMIT = 2**40  # as many mebibytes still make a number of bytes that the system takes


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one evaluation; they hold for the candidate's process, not for the whole search.

    Attributes:
        wall_seconds: Time from the start to the end of the process, on the monotonic clock.
        call_seconds: Time of each single call, of the last until the end of the process; None if
            only wall_seconds counts.
        memory_mb: Address space that the candidate may add to a bare interpreter, in MiB.
        scratch_mb: Size of what it may leave in its scratch folder at any time, in MiB.
        threads: Threads it may have at once.
        processes: Processes it may have at once beside its first.
        log_bytes: How much of standard output and error is kept.
        source_bytes: Longest source text accepted, in UTF-8.
        result_bytes: Longest answer accepted, all calls together.
    """

    wall_seconds: float = 360.0
    call_seconds: float | None = None
    memory_mb: int = 2048
    scratch_mb: int = 256
    threads: int = 64
    processes: int = 0
    log_bytes: int = 65536
    source_bytes: int = MEBIBYTE
    result_bytes: int = 64 * MEBIBYTE

    def __post_init__(self) -> None:
        """Refuse limits that are not positive numbers.

        Raises:
            ValueError: Naming the limit, its value and what was expected.
        """
        for name in ("wall_seconds", "call_seconds"):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_absent = name == "call_seconds" and value is None
            if not is_absent and not (is_number and 0 < value < inf):
                raise ValueError(f"{name} is {value!r}; expected a positive number")
        sizes = ("memory_mb", "scratch_mb", "threads", "log_bytes", "source_bytes", "result_bytes")
        for name, least in {**dict.fromkeys(sizes, 1), "processes": 0}.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                expected = f"expected an integer of at least {least}"
                raise ValueError(f"{name} is {value!r}; {expected}")
            if value > MAX_LIMIT:
                raise ValueError(f"{name} is {value!r}; expected at most {MAX_LIMIT}")

    @property
    def files_mb(self) -> int:
        """Size of a file system that holds the scratch folder and the source, in MiB."""
        return self.scratch_mb + ceil(self.source_bytes / MEBIBYTE)
