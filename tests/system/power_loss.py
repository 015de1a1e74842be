"""Processes whose machine loses its power: of their run file is left what was told to the disk."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from random import Random
from subprocess import TimeoutExpired

from crash_runs import EVALUATION, LATENCY, Provider
from preloaded import environment_of_tests, preloading
from shifted_clock import shift

RUN_FILES = ("run.sqlite", "run.sqlite-wal")
RUN = """
import json, sys
from pathlib import Path
from crash_runs import run_to_end
run_to_end(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
"""


DISK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Keeps in DISK_FOLDER what each run file held when it was last told to the disk. */
static void keep(int file) {
    char link[64], path[4096], part[8192], kept[8192], data[65536];
    const char *folder = getenv("DISK_FOLDER");
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (!folder || length < 0) return;
    path[length] = 0;
    const char *name = strrchr(path, '/') + 1;
    if (strncmp(name, "run.sqlite", 10)) return;
    snprintf(part, sizeof part, "%s/part", folder);
    snprintf(kept, sizeof kept, "%s/%s", folder, name);
    int copy = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    off_t at = 0;
    ssize_t count;
    while ((count = pread(file, data, sizeof data, at)) > 0) {
        if (write(copy, data, count) != count) abort();
        at += count;
    }
    close(copy);
    rename(part, kept);
}

int fdatasync(int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    int failed = real(file);
    if (!failed) keep(file);
    return failed;
}

int fsync(int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    int failed = real(file);
    if (!failed) keep(file);
    return failed;
}
"""


def started(
    folder: Path, url: str, options: Mapping[str, object], disk: Path | None = None, clock: int = 0
) -> subprocess.Popen[str]:
    """The process of a run.

    With `disk`, that folder holds what is left of the run file when the power fails; with `clock`,
    its time of day is that many seconds off.
    """
    environment = environment_of_tests()
    if clock:
        environment = shift(environment, clock)
    if disk is not None:
        disk.mkdir(exist_ok=True)
        libraries = f"{preloading(DISK)['LD_PRELOAD']} {environment.get('LD_PRELOAD', '')}"
        environment |= {"LD_PRELOAD": libraries.strip(), "DISK_FOLDER": str(disk)}
    words = str(folder), url, json.dumps(options)
    return subprocess.Popen([sys.executable, "-c", RUN, *words], env=environment)


def lose_power(folder: Path, disk: Path) -> None:
    """Leave of the run file in a folder what was told to the disk."""
    for file in folder.glob("run.sqlite*"):
        file.unlink()
    for name in RUN_FILES:
        if (disk / name).exists():
            shutil.copy(disk / name, folder / name)


def cut_log(folder: Path, share: float) -> None:
    """Leave of the log beside a run file only its first part, as a disk that lied would."""
    log = folder / "run.sqlite-wal"
    os.truncate(log, int(log.stat().st_size * share))
    (folder / "run.sqlite-shm").unlink(missing_ok=True)


def kill_often(
    folder: Path,
    url: str,
    provider: Provider,
    clocks: Sequence[int],
    options: Mapping[str, object],
    disk: Path | None = None,
) -> int:
    """Kill a run at random instants, its clock shifted by other seconds each time.

    With `disk`, the machine loses its power as well. Returns how often the run was alive then.
    """
    rng, num_hits = Random(len(clocks)), 0
    for clock in clocks:
        num_calls = provider.billed.total() + rng.randint(2, 4)
        provider.last_answered = num_calls + 2
        with started(folder, url, options, disk, clock) as process:
            while process.poll() is None and provider.billed.total() < num_calls:
                with suppress(TimeoutExpired):
                    process.wait(0.001)
            with suppress(TimeoutExpired):
                process.wait(rng.uniform(0, 2 * (LATENCY + EVALUATION)))
            num_hits += process.poll() is None
            process.kill()
        provider.last_answered = inf
        if disk is not None:
            lose_power(folder, disk)
    return num_hits
