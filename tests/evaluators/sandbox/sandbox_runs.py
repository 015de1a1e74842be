"""What the tests of the sandbox share: running candidates, and watching processes from outside."""

import os
import re
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from costada.evaluators.sandbox.candidate_results import results_of
from costada.evaluators.sandbox.candidate_runs import run_candidate
from costada.evaluators.sandbox.execution import execute, request_for
from costada.evaluators.sandbox.inside import process_tree
from costada.evaluators.sandbox.inside.orders import POLICY as POLICY
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot_kind import PRELOAD

HERE = Path(__file__).parent
LAYERS = (Layer.PROCESS, Layer.LANDLOCK, Layer.BUBBLEWRAP)
CONFINED = LAYERS[1:]
ENDS = (LAYERS[0], LAYERS[-1])
ONE = "def f(): return 1"
SCRATCH = "import os\ndef f(): return os.getcwd()"
WITHOUT_NAMESPACES = (
    "import errno, pyseccomp\n"
    "rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)\n"
    "rules.add_rule(pyseccomp.ERRNO(errno.EPERM), 'unshare')\n"
    "rules.load()\n"
)
"""Begins a script whose process layer has no namespaces, as in Docker."""
NO_NAMESPACES = "no namespaces for processes: run as root, or raise user.max_user_namespaces"
CALL = """
import ctypes, os, socket, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def call(*words):
    if libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""
"""Begins a program that makes raw system calls."""
FORTRAN = """
module numbers
  integer, parameter :: number = 41
end module numbers
program main
  use numbers
  print *, number
end program main
"""
"""Prints 41; its compiler makes a module file as well."""
AMPLE = Limits(wall_seconds=60)
PATIENCE_SECONDS = 30.0
"""How long a condition is waited for that comes true at once where the machine does not stall."""


def run(source, layer, limits=AMPLE, preload=PRELOAD, **arguments):
    return run_candidate(source, "f", limits, arguments, layer, preload)


def run_in(slot, source, limits=AMPLE, entry_point="f", **arguments):
    """Run a candidate in a slot of the test's own."""
    call = {"mode": "candidate", "entry_point": entry_point, "program": "candidate.py"}
    request = request_for({"candidate.py": source.encode()}, call, [arguments])
    return results_of(execute(slot, request, limits, limits.wall_seconds))[0]


def why_absent(layer):
    try:
        chosen_layer(layer)
    except ValueError as reason:
        return str(reason)
    return None


def becomes_true(condition, seconds: float = PATIENCE_SECONDS) -> bool:
    end = monotonic() + seconds
    while not (is_true := condition()) and monotonic() < end:
        sleep(0.02)
    return bool(is_true)


def has_ended(pid: int, seconds: float = PATIENCE_SECONDS) -> bool:
    """Whether a process is gone, or goes within some seconds."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], seconds)[0])
    finally:
        os.close(fd)


def read_proc(pid: int, name: str) -> str:
    """A file of a process; nothing if it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    return ""


def command_of(pid: int) -> str:
    """The words of a process's command, each ended by a zero; none if it is gone."""
    return read_proc(pid, "cmdline")


def running(part: str) -> list[int]:
    """The processes other than ours whose command holds something."""
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [n for n in numbers if part in command_of(n) and n != os.getpid()]


def descendants(pid: int) -> list[int]:
    """The processes that came from a process, zombies left out."""
    found = process_tree.descendants(pid)
    return [
        one
        for one in found
        if "State:\t" in (status := read_proc(one, "status")) and "State:\tZ" not in status
    ]


def servers_of(pid: int) -> list[int]:
    """The processes that candidates are forked from; neither these nor what is around them."""
    found = [
        one
        for one in descendants(pid)
        if "server_main.py" in (words := command_of(one))
        and not re.match("[^\0]*bwrap\0", words)
        and read_proc(one, "comm").strip() != process_tree.SUPERVISOR_NAME
    ]
    return [one for one in found if parent_of(one) not in found]


def prepared_of(pid: int) -> list[int]:
    """The processes that wait for a candidate: forks of a server which hold no program."""
    servers = servers_of(pid)
    forks = [one for one in descendants(pid) if parent_of(one) in servers]
    return [one for one in forks if not os.path.exists(f"/proc/{one}/cwd/candidate.py")]


def parent_of(pid: int) -> int:
    """The parent of a process; 0 if that is gone."""
    found = re.search(r"^PPid:\s(\d+)$", read_proc(pid, "status"), re.MULTILINE)
    return int(found[1]) if found else 0


def server_of(scratch: str) -> int:
    """The process that candidates with a scratch folder are forked from."""
    found = [one for one in servers_of(os.getpid()) if scratch in command_of(one)]
    assert found, f"no process is left that works in {scratch}"
    return found[0]


def has_namespaces() -> bool:
    return run("import os\ndef f(): return os.getppid()", Layer.PROCESS).output == 1


def has_ended_inside(number: int, seconds: float = PATIENCE_SECONDS) -> bool:
    """Whether no slot has a process of this number in its namespace, or none soon."""

    def is_there():
        statuses = [read_proc(one, "status") for one in descendants(os.getpid())]
        pattern = rf"^NSpid:.*\s{number}$"
        return any(re.search(pattern, status, re.MULTILINE) for status in statuses)

    return becomes_true(lambda: not is_there(), seconds)


def has_candidate(pid: int) -> bool:
    """Whether a candidate runs: its working folder holds its program."""
    return any(os.path.exists(f"/proc/{one}/cwd/candidate.py") for one in descendants(pid))


def start_script(text: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """Start Python code that has `run`, `Limits` and the rest, with folder as TMPDIR."""
    opening = (
        "import os, signal, sys, threading, time, warnings\n"
        "from costada.evaluators.sandbox.layer_choice import chosen_layer\n"
        "from costada.evaluators.sandbox.layers import Layer\n"
        "from costada.evaluators.sandbox.slot_kind import SlotKind\n"
        "from costada.evaluators.sandbox.limits import Limits\n"
        "from costada.evaluators.sandbox.candidate_runs import run_candidate\n"
        "from costada.evaluators.sandbox.slot import Slot\n"
        "def run(source, layer, limits=Limits(wall_seconds=60)):\n"
        "    return run_candidate(source, 'f', limits, layer=layer, preload=())\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", opening + text],
        env=os.environ
        | {"TMPDIR": str(folder), "PYTHONPATH": f"{HERE}:{HERE.parents[1]}"}
        | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(text: str, folder: Path, **environment: str) -> str:
    with start_script(text, folder, **environment) as process:
        try:
            output, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    return output.strip()
