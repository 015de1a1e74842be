"""What the two ends of a slot's control socket say to each other: orders, and how workers ended.

An order is a line of JSON that comes with three descriptors: request, result pipe and log pipe. An
order with `has_models` comes with a fourth, the channel to the models.
"""

from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple, Self

MAX_ORDER_BYTES = 4096
MAX_DESCRIPTORS = 4
BEGIN = b"\n"
"""Follows an order when the program is sent: from then on the worker is watched."""

CANDIDATE_FILE = "candidate.py"
"""Name of the file of a candidate of one string, unless the request says another."""

BUILD_FOLDER = ".build"
"""Where a built program is put; no file of a candidate can be there."""

REPOSITORY, HOME = "repository", "home"
"""Where the files of a repository and what its commands keep are, in a copy of both."""

SOURCES = "src"
"""The folder of a repository that is on the import path of its commands, beside its own."""

FOLDER, PROGRAM = "folder", "program"
"""Where the files of an evaluator and those of a candidate are, in the working folder of both."""

ORIGINAL = "original"
"""The folder beside that working folder, of which it is a copy."""

MAX_COPIED_BYTES = 32 * 2**20
"""Larger files of an evaluator are links to the file itself, which can only be read."""

CONTENT = Struct("=IQ")
"""Permissions and size ahead of the bytes of a file that is sent to a server."""

ABSENT = 2**64 - 1
"""The size of a file that is not sent, as it is gone or another one by now."""

MODELS_ADDRESS = ("127.0.0.1", 9)
"""Where clients of a candidate are told that its models are; nothing listens there."""

SEED = 0
"""Where the random numbers of `random` and NumPy begin in each candidate."""

CHILD_FAULT = 70
"""Exit status of a worker that could not report an error."""

STARTING = "start processes, "
POLICY = (
    f"(programs may not {STARTING}share memory, use the network, or touch files outside their"
    " working folder)"
)

KEEPING = {"keeps_files", "has_built"}
"""Orders after which the files of a build stay."""

Order = Mapping[str, int]
"""The limits of one worker: memory_mb, scratch_mb, cpu_seconds, threads, processes.

With may_execute, it becomes another program; with keeps_files, what it leaves is put aside, and
each worker with has_built starts with a copy of that. One with has_models has a thread more, which
carries what it sends to models. One that evaluates runs the evaluator of a folder; one that
is_apart runs a command that confines what it starts.
"""


def num_descriptors(order: Order) -> int:
    """How many descriptors come with an order."""
    return MAX_DESCRIPTORS if "has_models" in order else MAX_DESCRIPTORS - 1


class Permissions(NamedTuple):
    """What a worker may do beside computing."""

    may_start_processes: bool
    may_execute: bool  # other programs, in its own place or in processes
    evaluates: bool = False  # may also bound, schedule and restrict its own processes

    @classmethod
    def of(cls, order: Order) -> Self:
        """What an order permits."""
        may_start = order["processes"] > 0
        restricts = "evaluates" in order or "is_apart" in order
        return cls(may_start, may_start or "may_execute" in order, restricts)


def too_many_threads(allowed: int) -> str:
    """The reason for stopping a program that had more threads than allowed."""
    return f"the program had more than {allowed} threads"


def too_many_processes(allowed: int) -> str:
    """The reason for stopping a program that started more processes than allowed."""
    rule = f"at most {allowed} further processes are" if allowed else "further processes are not"
    return f"the program started processes; {rule} allowed"


def too_much_memory(allowed_mb: int) -> str:
    """The reason for stopping a program whose processes hold more memory than allowed."""
    return f"the program held more than {allowed_mb} MB of memory"


def policy(processes: int) -> str:
    """What programs may not do that may start so many processes."""
    return POLICY.replace(STARTING, "") if processes else POLICY
