"""Processes in which some calls of libc are other ones, compiled from C for a test."""

import atexit
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from needed_programs import require

TESTS = Path(__file__).parent


@cache
def _library(source: str) -> Path:
    if sys.platform != "linux":
        pytest.skip("calls of libc are replaced on Linux only")
    compiler = require("cc")
    folder = Path(mkdtemp(prefix="preloaded-"))
    atexit.register(shutil.rmtree, folder)
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", "calls.so", "-x", "c", "-", "-ldl"]
    subprocess.run(command, input=source, text=True, cwd=folder, check=True)
    return folder / "calls.so"


def preloading(source: str) -> dict[str, str]:
    """Return the variable that has a process load C code before libc; skips without a compiler."""
    return {"LD_PRELOAD": str(_library(source))}


def environment_of_tests() -> dict[str, str]:
    """Return the environment of this process, with what tests share on the path."""
    folders = [str(TESTS), str(TESTS / "system")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
