"""What the tests of the sandbox share: running candidates, and watching processes from outside."""

import os
import re
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from costada.evaluators.sandbox.inside import process_tree
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import PRELOAD, Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.run import run_candidate

LAYERS = (Layer.PROCESS, Layer.LANDLOCK, Layer.BUBBLEWRAP)
WALLED = LAYERS[1:]
ENDS = (LAYERS[0], LAYERS[-1])
SCRATCH = "import os\ndef f(): return os.getcwd()"
WITHOUT_NAMESPACES = (
    "import errno, pyseccomp\n"
    "rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)\n"
    "rules.add_rule(pyseccomp.ERRNO(errno.EPERM), 'unshare')\n"
    "rules.load()\n"
)
"""Begins a script whose process layer has to do without namespaces, as in Docker."""
AMPLE = Limits(wall_seconds=60)
POLICY = (
    "(programs may not start processes, share memory, use the network, or touch files outside their"
    " working folder)"
)


def run(source, layer, limits=AMPLE, preload=PRELOAD, **arguments):
    return run_candidate(source, "f", limits, arguments, layer, preload)


def why_absent(layer):
    """Return why the machine does not offer a layer; None if it does."""
    try:
        chosen_layer(layer)
    except ValueError as reason:
        return str(reason)
    return None


def has_ended(pid: int, seconds: float = 5.0) -> bool:
    """Return whether a process is gone, or goes within some seconds."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], seconds)[0])
    finally:
        os.close(fd)


def becomes_true(condition, seconds: float = 5.0) -> bool:
    end = monotonic() + seconds
    while not (is_true := condition()) and monotonic() < end:
        sleep(0.02)
    return bool(is_true)


def descendants(pid: int) -> list[int]:
    """Return the processes that came from a process, zombies left out."""
    found = [pid]
    for one in found:
        with suppress(FileNotFoundError, ProcessLookupError):
            for thread in os.listdir(f"/proc/{one}/task"):
                children = Path(f"/proc/{one}/task/{thread}/children").read_text()
                found += [int(word) for word in children.split()]
    return [one for one in found[1:] if not is_zombie(one)]


def is_zombie(pid: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def zygotes_of(pid: int) -> list[int]:
    """Return the processes that candidates are forked from, and these; nothing around them."""
    return [
        one
        for one in descendants(pid)
        if b"server_main.py" in (words := command_of(one))
        and not re.match(rb"[^\0]*bwrap\0", words)
        and name_of(one) != process_tree.SUPERVISOR_NAME
    ]


def name_of(pid: int) -> str:
    """Return the name of a process; none if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def ward_of(scratch: str) -> int:
    """Return the process that candidates with a scratch folder are forked from."""
    return next(one for one in zygotes_of(os.getpid()) if scratch.encode() in command_of(one))


def inside(number: int, pid: int | None = None) -> list[int]:
    """Return the descendants of a process, of this one by default, that have a number in a slot."""
    return [one for one in descendants(pid or os.getpid()) if number == number_inside(one)]


def number_inside(pid: int) -> int:
    """Return the number that a process has in its own process table."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(re.search(r"^NSpid:.*\s(\d+)$", status, re.MULTILINE).group(1))


def has_namespaces() -> bool:
    """Return whether slots of the process layer have process tables of their own here."""
    return run("import os\ndef f(): return os.getppid()", Layer.PROCESS).output == 1


def has_ended_inside(number: int, seconds: float = 5.0) -> bool:
    """Return whether no slot has a process of this number, or none soon."""
    return becomes_true(lambda: not inside(number), seconds)


def has_candidate(pid: int) -> bool:
    """Return whether a candidate runs: beside it are its slot and the one of the layer's probe."""
    return len(zygotes_of(pid)) >= 3


def command_of(pid: int) -> bytes:
    """Return the words of a process's command, each ended by a zero; none if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def start_script(text: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """Start Python code that has `run`, `Limits` and the rest, with folder as TMPDIR."""
    opening = (
        "import os, signal, sys, threading, time, warnings\n"
        "from costada.evaluators.sandbox.layer_choice import chosen_layer\n"
        "from costada.evaluators.sandbox.layers import Layer\n"
        "from costada.evaluators.sandbox.limits import Limits\n"
        "from costada.evaluators.sandbox.run import run_candidate\n"
        "def run(source, layer, limits=Limits(wall_seconds=60)):\n"
        "    return run_candidate(source, 'f', limits, layer=layer, preload=())\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", opening + text],
        env=os.environ | {"TMPDIR": str(folder)} | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told_by_script(text: str, folder: Path, **environment: str) -> str:
    """Return what Python code prints; it must end well."""
    with start_script(text, folder, **environment) as process:
        try:
            output, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    return output.strip()
