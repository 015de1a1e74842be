"""Processes whose clock is wrong: libc itself tells them another time of day."""

import subprocess
import sys

from preloaded import environment_of_tests, preloading

SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static time_t seconds_off(void) {
    const char *seconds = getenv("CLOCK_SHIFT_SECONDS");
    return seconds ? atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    int is_time_of_day = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (!failed && is_time_of_day) now->tv_sec += seconds_off();
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


def shift(environment: dict[str, str], seconds: int) -> dict[str, str]:
    """Return the environment of a process whose clock is shifted; below 0 is in the past."""
    return {**environment, **preloading(SOURCE), "CLOCK_SHIFT_SECONDS": str(seconds)}


def told_at(seconds: int, script: str, *arguments: object) -> str:
    """Return what a script prints with its clock shifted; it is checked that it ends well."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=shift(environment_of_tests(), seconds),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
