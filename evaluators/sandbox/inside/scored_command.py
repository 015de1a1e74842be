"""Runs commands in a candidate's clean copy of a repository, and reads the score they report.

The copy holds `repository/`, where the commands run, and `home/` for what they keep of their own.
What the last command reports is read here, within the candidate's limits: it may be anything.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO

from costada.evaluators.sandbox.inside.reported_scores import Report, read_json, read_output

REPOSITORY, HOME = "repository", "home"
SOURCES = "src"
STDOUT, STDERR = "stdout", "stderr"
NUM_CHARS = 16_000
"""How much of each output is reported, from its beginning and from its end."""

MAX_REPORT_BYTES = 4 * 2**20
"""Of the file, or the end of the output, in which a score is looked for."""


def load_commands(request: Mapping[str, Any]) -> Callable[[], Report]:
    """What runs the commands of a request one after the other, and reports the last that ran."""
    report_file = request["report_file"]
    environment = {**os.environ, "HOME": os.path.abspath(HOME), "TMPDIR": os.path.abspath(HOME)}
    folder = os.path.abspath(REPOSITORY)
    places = [os.path.join(folder, SOURCES), folder]
    # Found before an installed version of the same package, which may be the original's.
    environment["PYTHONPATH"] = os.pathsep.join(filter(os.path.isdir, places))

    def run() -> Report:
        if report_file is not None:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, report_file))
        report: Report = {}
        for name, words in request["commands"].items():
            report = {"name": name, **_run(words, folder, environment)}
            if report["status"] != 0:
                return report
        return report | _answer(folder, report_file)

    return run


def _run(words: list[str], folder: str, environment: Mapping[str, str]) -> Report:
    """Status, seconds and both outputs of a command; no status if there is no such program.

    `python` is the interpreter of this process, whatever its file is called.
    """
    if words[0] == "python":
        words = [sys.executable, *words[1:]]
    with open(STDOUT, "w+b") as stdout, open(STDERR, "w+b") as stderr:
        begun = monotonic()
        try:
            status = subprocess.run(
                words,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                check=False,
            ).returncode
        except (FileNotFoundError, PermissionError) as error:
            return {"status": None, STDOUT: "", STDERR: f"{error.strerror}: {words[0]}"}
        seconds = monotonic() - begun
        about = os.statvfs(".")
        return {
            "status": status,
            "seconds": seconds,
            STDOUT: _ends(stdout).replace(f"{folder}{os.sep}", ""),
            STDERR: _ends(stderr).replace(f"{folder}{os.sep}", ""),
            "is_full": about.f_bavail == 0 or (about.f_files > 0 and about.f_favail == 0),
        }


def _ends(file: BinaryIO) -> str:
    """The beginning and the end of a file as text."""
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    if size <= 2 * NUM_CHARS:
        return file.read(2 * NUM_CHARS).decode("utf-8", "replace")
    beginning = file.read(NUM_CHARS).decode("utf-8", "replace")
    file.seek(size - NUM_CHARS)
    return f"{beginning}\n[...]\n{file.read(NUM_CHARS).decode('utf-8', 'replace')}"


def _answer(folder: str, report_file: str | None) -> Report:
    """What the last command reports: metrics, or why there are none."""
    if report_file is None:
        with open(STDOUT, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_REPORT_BYTES))
            return read_output(file.read().decode("utf-8", "replace"))
    path = Path(folder, report_file)
    try:
        size = path.stat().st_size
        if size > MAX_REPORT_BYTES:
            return {"fault": f"{report_file} has {size} bytes; expected {MAX_REPORT_BYTES} at most"}
        return read_json(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        return {"fault": f"{report_file}: {error.strerror}; expected the command to write it"}
    except ValueError as error:
        return {"fault": f"{report_file} holds no score: {error}"}
