"""Programs that some tests need, and the Debian packages that bring them."""

import shutil

import pytest

PACKAGES = {
    "/usr/bin/time": "time",
    "bwrap": "bubblewrap",
    "cargo": "cargo",
    "cc": "gcc",
    "chromium": "chromium",
    "cmake": "cmake",
    "docker": "docker.io",
    "fish": "fish",
    "g++": "g++",
    "gcc": "gcc",
    "gfortran": "gfortran",
    "hyperfine": "hyperfine",
    "javac": "default-jdk",
    "node": "nodejs",
    "pg_ctl": "postgresql",
    "pgbouncer": "pgbouncer",
    "promtool": "prometheus",
    "ps": "procps",
    "rustc": "rustc",
    "setpriv": "util-linux",
    "zsh": "zsh",
}


def how_to_install(program: str) -> str:
    """Return why a test is skipped that needs a program."""
    return f"{program} is not installed: apt-get install {PACKAGES[program]}"


def needs(program: str) -> pytest.MarkDecorator:
    """Mark a test that is skipped where a program is not on PATH."""
    return pytest.mark.skipif(shutil.which(program) is None, reason=how_to_install(program))


def require(program: str) -> str:
    """Return the path of a program, which may be an administrator's; skip if there is none."""
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin")
    if found is None:
        pytest.skip(how_to_install(program))
    return found


if __name__ == "__main__":  # for `.ci/run`
    print(*sorted({PACKAGES[program] for program in PACKAGES if shutil.which(program) is None}))
