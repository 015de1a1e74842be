"""Processes whose clock is wrong: libc itself tells them another time of day."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

TESTS = Path(__file__).parent
SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static time_t shift(void) {
    const char *seconds = getenv("CLOCK_SHIFT_SECONDS");
    return seconds ? atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    int is_time_of_day = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (!failed && is_time_of_day) now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *kept) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (kept) *kept = precise.tv_sec;
    return precise.tv_sec;
}
"""


@cache
def _library() -> Path:
    """Return the library that shifts the clock, compiled once; skips where nothing compiles it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("a shifted clock needs Linux and a C compiler")
    folder = Path(mkdtemp(prefix="shifted-clock-"))
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", "clock.so", "-x", "c", "-", "-ldl"]
    subprocess.run(command, input=SOURCE, text=True, cwd=folder, check=True)
    return folder / "clock.so"


def begun_at(seconds: int, script: str, *arguments: object) -> subprocess.Popen[str]:
    """Return a process that runs a script with its clock shifted; below 0 is in the past."""
    folders = [str(TESTS), str(TESTS / "crash"), str(TESTS / "graph")]
    environment = {
        **os.environ,
        "LD_PRELOAD": str(_library()),
        "CLOCK_SHIFT_SECONDS": str(seconds),
        "PYTHONPATH": os.pathsep.join(folders),
    }
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told_at(seconds: int, script: str, *arguments: object) -> str:
    """Return what a script prints with its clock shifted; it is checked that it ends well."""
    with begun_at(seconds, script, *arguments) as process:
        said, complaints = process.communicate()
    assert process.returncode == 0, complaints
    return said
