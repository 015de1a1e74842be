"""Which layer holds candidates on this machine: found by trying, not by asking for versions."""

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from threading import Lock

from costada.evaluators.sandbox.execution import execute_in_any, request_for
from costada.evaluators.sandbox.judgement import results_of
from costada.evaluators.sandbox.launch import SlotKind
from costada.evaluators.sandbox.layers import PRELOAD, Layer
from costada.evaluators.sandbox.limits import Limits

_choosing = Lock()

BY_STRENGTH = (Layer.BUBBLEWRAP, Layer.LANDLOCK, Layer.PROCESS)
WITHOUT_WALLS = (Layer.PROCESS, Layer.NONE)
PROBE_FILE = Path(__file__).parent / "inside" / "probe.py"
PROBE_SECONDS = 20.0
KEEPER = """
import os, sys, tempfile
with tempfile.TemporaryDirectory(prefix="costada-probe-") as folder:
    sys.stdout.buffer.write(os.fsencode(folder) + b"\\n")
    sys.stdout.flush()
    sys.stdin.readline()
"""
"""Keeps a folder until it reads a line or its parent is gone."""

ONLY_PROCESS = (
    "sandbox: only the process layer works here, so programs can read your files and use the"
    " network; install bubblewrap, or use a Linux kernel with Landlock (5.13 or newer)"
)


def chosen_layer(layer: Layer) -> Layer:
    """Return the layer that holds candidates; AUTO becomes the strongest that works here.

    Each layer is tried once in a process: a probe tries to get out of it. Where AUTO finds only
    the process layer, a warning says so once.

    Raises:
        ValueError: If the layer asked for does not work here, with the reason.
    """
    with _choosing:
        if layer is Layer.AUTO:
            return _strongest()
        fault = _fault(layer)
    if fault:
        raise ValueError(f"sandbox is {layer.value!r}, which does not work here: {fault}")
    return layer


@cache
def _strongest() -> Layer:
    faults = {}
    for layer in BY_STRENGTH:
        if not (fault := _fault(layer)):
            break
        faults[layer] = fault
    else:
        told = "; ".join(f"{layer.value}: {fault}" for layer, fault in faults.items())
        raise RuntimeError(f"sandbox: no layer works here ({told})")
    if layer is Layer.PROCESS:
        warnings.warn(ONLY_PROCESS, RuntimeWarning, stacklevel=2)
    return layer


def described_layer(layer: Layer) -> str:
    """Return the name of a chosen layer, with what it leaves open on this machine."""
    if _trial(layer).bounds_files or layer is Layer.NONE:
        return layer.value
    return f"{layer.value} (no file system of its own: the size of files is only watched)"


def _fault(layer: Layer) -> str | None:
    """Return why a layer does not work here; None if it does."""
    return _trial(layer).fault


@dataclass(frozen=True, slots=True)
class _Trial:
    """What came of trying a layer: why it does not work, and whether it bounds files by size."""

    fault: str | None
    bounds_files: bool = False


@cache
def _trial(layer: Layer) -> _Trial:
    with _probe_folder() as folder:
        canary = folder / "canary"
        canary.write_text("readable")
        try:
            done, bounds_files = _probe(layer, canary)
        except (OSError, RuntimeError) as error:
            if isinstance(error, InterruptedError):
                raise
            return _Trial(str(error).removeprefix("sandbox: "))
    escapes = [name for name, is_done in done.items() if is_done]
    if escapes and layer not in WITHOUT_WALLS:
        return _Trial(f"a probe inside it could {', '.join(escapes)}")
    return _Trial(None, bounds_files)


@contextmanager
def _probe_folder() -> Iterator[Path]:
    """Lend a folder that is removed when the block ends, also when it ends with this process."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", KEEPER],
        env={**os.environ, "TMPDIR": gettempdir()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as keeper:
        folder = keeper.stdout.readline() if keeper.stdout else b""
        if not folder:
            raise OSError(f"sandbox: no folder can be made in {gettempdir()}")
        try:
            yield Path(os.fsdecode(folder[:-1]))
        finally:
            keeper.communicate(b"\n")


def _probe(layer: Layer, canary: Path) -> tuple[Mapping[str, bool], bool]:
    """Return what a probe could do in a layer, and whether that bounds the size of files.

    It tries to read a file, open a socket, fork and write outside.
    """
    call = {"mode": "candidate", "entry_point": "probe"}
    request = request_for(PROBE_FILE.read_bytes(), call, [{"canary": str(canary)}])
    # Where nothing keeps the probe from forking, the watch over processes must not end it.
    limits = Limits(processes=int(layer in WITHOUT_WALLS))
    execution = execute_in_any(SlotKind(layer, PRELOAD), request, limits, PROBE_SECONDS)
    bounds_files = execution.slot.bounds_files
    [result] = results_of(execution)
    match result.output:
        case dict(done):
            return {name: bool(is_done) for name, is_done in done.items()}, bounds_files
    raise RuntimeError(f"a probe failed: {result.error}")
