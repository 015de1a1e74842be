"""Scores that evaluators and commands report, read in the candidate's process, within its limits.

A repository's commands run in a clean copy: `repository/`, where they run, and `home/` for what
they keep of their own. What the last one reports is a number, JSON, or run times that a tool
measured; it may come from the candidate, so it may be anything.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from math import exp, inf, isfinite, log
from numbers import Real
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO

from costada.evaluators.sandbox.inside.orders import HOME, REPOSITORY, SOURCES

FAILURES = ("error", "errors", "exception", "failed", "failure", "failures")
"""Names under which an evaluator reports that a candidate failed; as strings, the first counts."""

_WORD = re.compile(
    r"(?<![a-z])(errors?|exceptions?|fail(s|ed|ures?)?|crash(es|ed)?|timeouts?|timed_out)(?![a-z])"
)
_NEGATED = re.compile(r"(?<![a-z])(neg|negative|minus|inverse|no|non)(?![a-z])")

STDOUT, STDERR = "stdout", "stderr"
NUM_CHARS = 16_000
"""How much of each output is reported, from its beginning and from its end."""

MAX_REPORT_BYTES = 4 * 2**20
"""Of the file, or the end of the output, in which a score is looked for."""

MAX_METRICS = 200
MAX_NAME_CHARS = 200
MAX_TEXT_CHARS = 4_000
LABELLED = re.compile(r"([^:=]{0,100})[:=]\s*(\S{1,50})")
"""A line such as `score: 0.5`, unless its label is one of `FAILURES`."""

CHANGED = "{} changed {}; expected it to leave what the command names as it is"

COMBINED_SCORE = "combined_score"
SECONDS = "seconds"
EXPECTED = f"expected a number, or a JSON object with {COMBINED_SCORE}, as the last line"

Report = dict[str, Any]
"""Holds `metrics`, `texts` and whether they `are_times`; or the `fault` for which they are absent.
"""


def load_commands(request: Mapping[str, Any]) -> Callable[[], Report]:
    """What runs the commands of a request one after the other, and reports the last that ran."""
    report_file = request["report_file"]
    environment = {**os.environ, "HOME": os.path.abspath(HOME), "TMPDIR": os.path.abspath(HOME)}
    environment |= request["keys"]
    folder = os.path.abspath(REPOSITORY)
    places = [os.path.join(folder, SOURCES), folder]
    # Found before an installed version of the same package, which may be the original's.
    places.append(os.environ.get("PYTHONPATH", ""))
    if "site" in request:
        places.insert(0, request["site"])
        # A program that is started could change the code that Python would keep.
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment["PYTHONPATH"] = os.pathsep.join(filter(os.path.isdir, places))
    inherited = [request["channel_fd"]] if "channel_fd" in request else []

    def run() -> Report:
        if report_file is not None:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, report_file))
        *firsts, last = request["commands"].items()
        program = {os.path.abspath(path) for path in request["files"]}
        named = _contents(folder, last[1], program) if firsts else {}
        for name, words in firsts:
            report = {"name": name, **_run(words, folder, environment, inherited)}
            if report["status"] != 0:
                return report
            # The candidate's code may have run: it could change what scores it.
            now = _contents(folder, [*named], program)
            if changed := [word for word in named if named[word] != now.get(word)]:
                return report | {"fault": CHANGED.format(name, ", ".join(changed))}
        report = {"name": last[0], **_run(last[1], folder, environment, inherited)}
        return report if report["status"] != 0 else report | _answer(folder, report_file)

    return run


def _contents(
    folder: str, words: Sequence[str], program: Container[str]
) -> dict[str, bytes | None]:
    """What is in each file that a command names, unless it is the candidate's."""
    found: dict[str, bytes | None] = {}
    for word in words:
        path = os.path.join(folder, word)
        if os.path.isfile(path) and os.path.normpath(path) not in program:
            found[word] = Path(path).read_bytes()
    return found


def _run(
    words: list[str], folder: str, environment: Mapping[str, str], inherited: Sequence[int]
) -> Report:
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
                pass_fds=inherited,
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


def read_output(stdout: str) -> Report:
    """What a command's output says: its last line, or all of it."""
    lines = stdout.strip().splitlines()
    if not lines:
        return {"fault": f"the command printed nothing; {EXPECTED}"}
    labelled = LABELLED.fullmatch(lines[-1].strip())
    is_score = labelled and labelled[1].strip().lower() not in FAILURES
    for text in (lines[-1], stdout, labelled[2] if labelled and is_score else ""):
        with suppress(ValueError):
            return read_json(text)
    return {"fault": f"the command's last line is {_shortened(lines[-1])}; {EXPECTED}"}


def read_json(text: str) -> Report:
    """What a number or JSON says.

    It may be an object of metrics, or what pytest-benchmark or hyperfine wrote.

    Raises:
        ValueError: If it is neither.
    """
    with suppress(ValueError):
        return _read_metrics({COMBINED_SCORE: float(text)})
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    match value:
        case {"benchmarks": [{"stats": _}, *_] as rows}:
            return _read_times(
                (_at(row, "fullname"), _at(_at(row, "stats"), "median")) for row in rows
            )
        case {"results": [{"command": _}, *_] as rows}:
            return _read_times((_at(row, "command"), _at(row, "median")) for row in rows)
        case dict():
            return _read_metrics(value)
    raise ValueError("neither a number nor an object")


def _at(row: object, key: str) -> object:
    return row.get(key) if isinstance(row, dict) else None


def _read_times(medians: Iterable[tuple[object, object]]) -> Report:
    """Median run times by name, in seconds, and their geometric mean."""
    times = []
    for name, value in medians:
        if not isinstance(value, float | int) or not 0 < value < inf:
            fault = (
                f"the median time of {_shortened(name)} is {_shortened(value)}; expected seconds"
            )
            return {"fault": fault}
        times.append((f"{SECONDS} of {name}"[:MAX_NAME_CHARS], float(value)))
    mean = exp(sum(log(value) for _, value in times) / len(times))
    several = times[:MAX_METRICS] if len(times) > 1 else []
    return {"metrics": {SECONDS: mean, **dict(several)}, "texts": {}, "are_times": True}


def _read_metrics(values: Mapping[str, object]) -> Report:
    """Finite numbers as metrics, and all else as text."""
    if len(values) > MAX_METRICS:
        return {
            "fault": f"the command reports {len(values)} values; expected at most {MAX_METRICS}"
        }
    metrics: dict[str, float] = {}
    texts: dict[str, str] = {}
    for name, value in values.items():
        key = name[:MAX_NAME_CHARS]
        with suppress(OverflowError):
            if isinstance(value, bool | int | float) and isfinite(value):
                metrics[key] = float(value)
                continue
        texts[key] = (value if isinstance(value, str) else json.dumps(value))[:MAX_TEXT_CHARS]
    if COMBINED_SCORE in texts:
        given = _shortened(values[COMBINED_SCORE])
        return {"fault": f"{COMBINED_SCORE} is {given}; expected a finite number"}
    return {"metrics": metrics, "texts": texts, "are_times": False}


def _shortened(value: object) -> str:
    return repr(value)[:MAX_NAME_CHARS]


def as_metrics(answer: object) -> object:
    """What an evaluator returned, where it is a score or `(score, side_info)`, as one dict.

    The latter is what GEPA's `optimize_anything` takes. The `scores` in the side information are
    metrics by name. Any other answer is returned as it is.
    """
    match answer:
        case (score, side_info) if isinstance(answer, tuple):
            further = {} if side_info is None else side_info
        case _:
            score, further = answer, {}
    is_number = isinstance(score, Real) or getattr(score, "shape", None) == ()
    if not is_number or not isinstance(further, Mapping):
        return answer
    scores = further.get("scores")
    if not isinstance(scores, Mapping):
        return {**further, COMBINED_SCORE: score}
    rest = {name: value for name, value in further.items() if name != "scores"}
    return {**rest, **scores, COMBINED_SCORE: score}


def as_text(value: object) -> str:
    """A value of an evaluator as a model reads it: strings of a list as lines, the rest as JSON."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return "\n".join(value)
    if isinstance(value, Mapping | list | tuple):
        with suppress(TypeError, ValueError, RecursionError):
            return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def names_failure(name: str) -> bool:
    """Whether a number of this name is higher where more went wrong, as far as the name says."""
    words = name.lower()
    return _WORD.search(words) is not None and _NEGATED.search(words) is None
