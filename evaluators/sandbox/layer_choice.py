"""Chooses the layer that confines candidates on this machine, by trying each one."""

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from threading import Lock
from typing import NamedTuple

from costada.evaluators.sandbox.candidate_results import results_of
from costada.evaluators.sandbox.execution import execute_in_any, request_for
from costada.evaluators.sandbox.helper_environment import helper_environment
from costada.evaluators.sandbox.interpreter import interpreter_at
from costada.evaluators.sandbox.launch import SANDBOX_FOLDER
from costada.evaluators.sandbox.layers import BY_STRENGTH, Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot_kind import PRELOAD, SlotKind, readable_paths
from costada.evaluators.sandbox.toolchains import installed_toolchains

PROBE_FILE = SANDBOX_FOLDER / "inside" / "probe.py"
PROBE_SECONDS = 20.0
TEMPORARY_FOLDER = """
import os, sys, tempfile
with tempfile.TemporaryDirectory(prefix="costada-probe-") as folder:
    sys.stdout.buffer.write(os.fsencode(folder) + b"\\n")
    sys.stdout.flush()
    sys.stdin.readline()
"""
"""Holds a temporary folder until it reads a line or its parent has ended."""

_choosing = Lock()


def chosen_layer(layer: Layer) -> Layer:
    """The layer that confines candidates; AUTO becomes the strongest that works here.

    Each layer is tried once in a process: a probe tries to get out of it. Where AUTO finds only
    the process layer, there is one warning.

    Raises:
        RuntimeError: If none of the layers that AUTO tries works.
        ValueError: If the layer asked for does not work here, with the reason.
    """
    with _choosing:
        if layer is Layer.AUTO:
            return _strongest()
    if fault := layer_fault(layer):
        raise ValueError(f"sandbox is {layer.value!r}, which does not work here: {fault}")
    return layer


def layer_fault(layer: Layer) -> str | None:
    """Why a layer, which is not AUTO, does not work on this machine; `None` if it does."""
    with _choosing:
        return _probe_result(layer).fault


def kind_for(
    layer: Layer,
    limits: Limits,
    preload: Sequence[str] = (),
    interpreter: str | None = None,
    readable: Sequence[str] = (),
    *,
    starts_programs: bool = False,
) -> SlotKind:
    """What a slot is prepared for whose candidates have these limits.

    Args:
        layer: What confines the candidates; AUTO is chosen here.
        limits: What one of them may take.
        preload: Modules that are loaded before it starts.
        interpreter: Path of the Python that runs it; that of this process if absent.
        readable: Paths, and patterns of such, that it may read beside the system's.
        starts_programs: Whether it may start compilers, so that it reads those of rustup too.

    Raises:
        RuntimeError: If AUTO finds no layer that works.
        ValueError: If this machine does not offer the layer, the interpreter, or a path.
    """
    return SlotKind(
        chosen_layer(layer),
        tuple(preload),
        files_mb=limits.files_mb,
        interpreter=interpreter_at(interpreter) if interpreter else None,
        readable=readable_paths([*readable, *(installed_toolchains() if starts_programs else [])]),
    )


@cache
def _strongest() -> Layer:
    faults = []
    for layer in BY_STRENGTH:
        if not (fault := _probe_result(layer).fault):
            break
        faults.append(f"{layer.value}: {fault}")
    else:
        raise RuntimeError(f"sandbox: no layer works here ({'; '.join(faults)})")
    if warning := layer.implementation.auto_warning:
        warnings.warn(warning, RuntimeWarning, stacklevel=2)
    return layer


def described_layer(layer: Layer) -> str:
    """The name of a chosen layer, with what it leaves open on this machine."""
    if not layer.implementation.has_limits or _probe_result(layer).bounds_files:
        return layer.value
    return f"{layer.value} (no file system of its own: the size of files is only watched)"


class ProbeResult(NamedTuple):
    """Why a layer does not work here, None if it does; and whether it bounds the size of files."""

    fault: str | None
    bounds_files: bool = False


@cache
def _probe_result(layer: Layer) -> ProbeResult:
    bounds_files = False

    def attempt(limits: Limits) -> Mapping[str, bool]:
        nonlocal bounds_files
        successes, bounds_files = _probe(layer, limits, canary)
        return successes

    with _temporary_folder() as folder:
        canary = folder / "canary"
        canary.write_text("readable")
        try:
            fault = layer.implementation.probe(attempt)
        except (OSError, RuntimeError) as error:
            if isinstance(error, InterruptedError):
                raise
            fault = str(error).removeprefix("sandbox: ")
    return ProbeResult(fault, bounds_files and fault is None)


def _probe(layer: Layer, limits: Limits, canary: Path) -> tuple[Mapping[str, bool], bool]:
    """What a probe could do in a layer, and whether the layer bounds the size of files.

    It tries to read a file, write outside, open a socket and fork.
    """
    call = {"mode": "candidate", "entry_point": "probe", "program": PROBE_FILE.name}
    files = {PROBE_FILE.name: PROBE_FILE.read_bytes()}
    request = request_for(files, call, [{"canary": str(canary)}])
    execution = execute_in_any(SlotKind(layer, PRELOAD), request, limits, PROBE_SECONDS)
    bounds_files = execution.slot.bounds_files
    [result] = results_of(execution)
    if not isinstance(result.output, dict):
        raise RuntimeError(f"a probe failed: {result.error}")
    return {name: bool(is_done) for name, is_done in result.output.items()}, bounds_files


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A folder that is removed when the block ends, also when this process is killed."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", TEMPORARY_FOLDER],
        env={**helper_environment(), "TMPDIR": gettempdir()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as holder:
        folder = holder.stdout.readline() if holder.stdout else b""
        if not folder:
            raise OSError(f"sandbox: no folder can be made in {gettempdir()}")
        try:
            yield Path(os.fsdecode(folder[:-1]))
        finally:
            holder.communicate(b"\n")
