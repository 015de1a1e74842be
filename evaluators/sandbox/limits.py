"""How much one evaluation of a candidate may take."""

from dataclasses import dataclass
from functools import cache
from math import ceil, inf
from types import NoneType
from typing import Annotated, Any, cast, get_args, get_type_hints

from annotated_types import Ge, Gt, Le

MEBIBYTE = 1024 * 1024
MIN_MEMORY_MB = 16
"""Less than this is refused: a program that does nothing needs up to 2 MiB, and a smaller number is
probably meant as GiB."""
MAX_LIMIT = 2**40  # as many mebibytes still make a number of bytes that the system takes

Seconds = Annotated[float, Gt(0)]
OptionalSeconds = Annotated[float | None, Gt(0)]
Size = Annotated[int, Ge(1), Le(MAX_LIMIT)]
Memory = Annotated[int, Ge(MIN_MEMORY_MB), Le(MAX_LIMIT)]
NumProcesses = Annotated[int, Ge(0), Le(MAX_LIMIT)]


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

    wall_seconds: Seconds = 360.0
    call_seconds: OptionalSeconds = None
    memory_mb: Size = 2048
    scratch_mb: Size = 256
    threads: Size = 64
    processes: NumProcesses = 0
    log_bytes: Size = 65536
    source_bytes: Size = MEBIBYTE
    result_bytes: Size = 64 * MEBIBYTE

    def __post_init__(self) -> None:
        """Refuse limits that are not positive numbers.

        Raises:
            ValueError: Naming the limit, its value and what was expected.
        """
        for name, hint in _hints().items():
            value, bounds = getattr(self, name), hint.__metadata__
            if value is None and NoneType in get_args(hint.__origin__):
                continue
            if Gt(0) in bounds:
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                if not (is_number and 0 < value < inf):
                    raise ValueError(f"{name} is {value!r}; expected a positive number")
                continue
            least = next(cast(int, each.ge) for each in bounds if isinstance(each, Ge))
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                expected = f"expected an integer of at least {least}"
                raise ValueError(f"{name} is {value!r}; {expected}")
            if value > MAX_LIMIT:
                raise ValueError(f"{name} is {value!r}; expected at most {MAX_LIMIT}")

    @property
    def files_mb(self) -> int:
        """Size of a file system that holds the scratch folder and the source, in MiB."""
        return self.scratch_mb + ceil(self.source_bytes / MEBIBYTE)


@cache
def _hints() -> dict[str, Any]:
    """The declared type and range of each limit."""
    return get_type_hints(Limits, include_extras=True)
