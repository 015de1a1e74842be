"""Which problem folders of OpenEvolve, SkyDiscover and ShinkaEvolve work here, and how they score.

    python bench/folders.py PATH... [--adopt] [--prepare] [--sandbox LAYER]

Every folder below the paths that holds an evaluator and an initial program is a line of a table:
its contract, whether its start is valid or why it is not, its score here, its score with the tool
that it was written for, and the seconds of the evaluation here. For the tool's own score, its
evaluator class (OpenEvolve, SkyDiscover) or its command (ShinkaEvolve, containers) runs in another
process, without anything of CostAda, with the tool's own code from the repository around the
folder. With `--prepare`, environments are made first (`costada prepare`), which takes a network.
Evaluators run here in the sandbox, but with their own tool as the user: try folders you trust.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from time import monotonic

from costada.evaluators.environment import interpreter_of
from costada.evaluators.folders import read_folder

TOOLS = ("openevolve", "skydiscover", "shinka")
EVALUATORS = ("evaluator.py", "evaluate.py")
PROGRAMS = ("initial_program.*", "init_program.*", "initial.*", "initial_prompt.*")
FOLDERS = ("initial_program",)
SKIPPED = {"best_program", "tests", "legacy", "node_modules"}
COSTADA = Path(sys.executable).with_name("costada")
TOLERANCE = 1e-6
"""Relative difference of scores that count as the same."""

OPENEVOLVE = """
import asyncio, json, sys
from pathlib import Path
from openevolve.config import Config, load_config
from openevolve.evaluator import Evaluator
from openevolve.utils.metrics_utils import get_fitness_score
evaluator, program, config = sys.argv[1:4]
settings = load_config(config) if config else Config()
judge = Evaluator(settings.evaluator, evaluator, suffix=Path(program).suffix)
metrics = asyncio.run(judge.evaluate_program(Path(program).read_text()))
score = get_fitness_score(metrics, settings.database.feature_dimensions)
print("RESULT " + json.dumps({"score": score, "metrics": {k: str(v) for k, v in metrics.items()}}))
"""
SKYDISCOVER = """
import asyncio, json, sys
from pathlib import Path
from skydiscover.config import Config, load_config
from skydiscover.evaluation.evaluator import Evaluator
from skydiscover.utils.metrics import get_score
evaluator, program, config = sys.argv[1:4]
settings = load_config(config) if config else Config()
settings.evaluator.evaluation_file = evaluator
settings.evaluator.file_suffix = Path(program).suffix
judge = Evaluator(settings.evaluator)
metrics = asyncio.run(judge.evaluate_program(Path(program).read_text())).metrics
result = {"score": get_score(metrics), "metrics": {k: str(v) for k, v in metrics.items()}}
print("RESULT " + json.dumps(result))
"""
JUDGED = """
import json, sys
from costada.cli.command_errors import showing_warnings
from costada.evaluators.problem import check_problem, confine
from costada.evaluators.registry import problem
from costada.evaluators.sandbox.layers import Layer
with showing_warnings():
    found = confine(problem(sys.argv[1]), sandbox=Layer(sys.argv[3]) if sys.argv[3] else None)
    limits = found.limits
    if limits.wall_seconds > float(sys.argv[2]):
        found = confine(found, timeout=float(sys.argv[2]))
    print("LOADED", flush=True)
    verdict = found.evaluate_program(found.start, "bench")
marks = {key: text for key, text in verdict.artifacts.items() if key.isupper() or "fault" in key}
print("RESULT " + json.dumps({
    "score": verdict.objective if verdict.objective is not None else verdict.score,
    "is_valid": verdict.is_valid, "error": verdict.error, "seconds": verdict.seconds,
    "log": verdict.artifacts.get("log", "")[-600:], "marks": marks,
    "metrics": {k: str(v) for k, v in verdict.metrics.items()}}))
"""


@dataclass
class Row:
    """What is known of one folder."""

    folder: str
    contract: str
    is_valid: bool = False
    reason: str = ""
    score: float | None = None
    own_score: float | None = None
    own_reason: str = ""
    seconds: float = 0.0
    log: str = ""
    metrics: dict[str, str] = field(default_factory=dict)
    own_metrics: dict[str, str] = field(default_factory=dict)

    @property
    def is_same(self) -> bool | None:
        """Whether both scores are the same; None if one is unknown."""
        if self.score is None or self.own_score is None:
            return None
        return abs(self.score - self.own_score) <= TOLERANCE * max(1.0, abs(self.own_score))


def problem_folders(root: Path) -> Iterator[Path]:
    """Folders with an evaluator and an initial program, outermost first."""
    for path, folders, _ in os.walk(root):
        folders[:] = sorted(each for each in folders if each[0] != "." and each not in SKIPPED)
        folder = Path(path)
        if evaluator_of(folder) is None or folder.name == "evaluator":
            continue
        if program_of(folder) is not None:
            yield folder


def evaluator_of(folder: Path) -> Path | None:
    """The evaluator that its own tool would run."""
    places = [folder, folder / "evaluator"]
    found = [place / name for place in places for name in EVALUATORS]
    return next((path for path in found if path.is_file()), None)


def program_of(folder: Path) -> Path | None:
    """The initial program."""
    found = [path for name in PROGRAMS for path in sorted(folder.glob(name)) if path.is_file()]
    found += [folder / name for name in FOLDERS if (folder / name).is_dir()]
    return next(iter(found), None)


def tool_of(folder: Path) -> tuple[str, Path | None]:
    """The tool in whose repository a folder is, and the repository."""
    for around in folder.parents:
        for tool in TOOLS:
            if (around / tool / "__init__.py").is_file():
                return tool, around
    return "", None


def contract_of(folder: Path, evaluator: Path) -> str:
    """The contract in a few words, from the evaluator's text."""
    text = evaluator.read_text("utf-8", "replace")
    stages = len(set(re.findall(r"\bevaluate_stage[123]\b", text)))
    if (evaluator.parent / "evaluate.sh").is_file():
        return "evaluate.sh"
    if "--results_dir" in text:
        return "results_dir"
    if re.search(r"^def evaluate\b|\bimport .*\bevaluate\b", text, re.MULTILINE):
        return f"evaluate, {stages} stages" if stages else "evaluate"
    return "unknown"


def python_of(folder: Path) -> str:
    """The interpreter of a folder's environment, or else this one."""
    return interpreter_of(folder) or sys.executable


def result_of(command: Sequence[str], seconds: float, **options: object) -> dict[str, object]:
    """What a command says after RESULT, or why it says nothing."""
    try:
        done = subprocess.run(  # type: ignore[call-overload]
            command, capture_output=True, text=True, errors="replace", timeout=seconds, **options
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done in {seconds:g} s"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("RESULT "):
            return dict(json.loads(line.removeprefix("RESULT ")))
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return {"error": said[-1] if said else f"exit code {done.returncode}", "stdout": done.stdout}


def judge_here(row: Row, folder: Path, seconds: float, sandbox: str) -> None:
    """Fill in what CostAda says of the folder's initial program."""
    command = [sys.executable, "-c", JUDGED, str(folder), str(seconds), sandbox]
    found = result_of(command, seconds + 60, cwd=tempfile.gettempdir())
    row.is_valid = bool(found.get("is_valid"))
    row.reason = "" if row.is_valid else str(found.get("error"))
    row.log = str(found.get("log", ""))
    if row.is_valid:
        row.score = float(str(found["score"]))
    row.seconds = float(str(found.get("seconds", 0.0)))
    row.metrics = dict(found.get("metrics") or {})  # type: ignore[call-overload]


def judge_there(row: Row, folder: Path, evaluator: Path, seconds: float) -> None:
    """Fill in what the folder's own tool says of its initial program."""
    tool, repository = tool_of(folder)
    program = program_of(folder)
    if program is None or program.is_dir() or repository is None:
        row.own_reason = "no tool around the folder"
        return
    python = python_of(folder)
    paths = os.pathsep.join([str(repository), packages_of(repository)])
    environment = os.environ | {"PYTHONPATH": paths, "MPLBACKEND": "Agg"}
    environment["PATH"] = f"{Path(python).parent}{os.pathsep}{environment['PATH']}"
    options = {"env": environment, "cwd": evaluator.parent}
    if tool == "shinka":
        with tempfile.TemporaryDirectory() as results:
            given = ["--program_path", str(program), "--results_dir", results]
            found = result_of([python, str(evaluator), *given], seconds, **options)
            metrics = Path(results, "metrics.json")
            if metrics.is_file():
                known = json.loads(metrics.read_text())
                found = {"score": known.get("combined_score"), "metrics": known}
    elif (evaluator.parent / "evaluate.sh").is_file():
        found = result_of([python, str(evaluator), str(program)], seconds, **options)
        for line in reversed(str(found.get("stdout", "")).splitlines()):
            if line.startswith("{"):
                known = json.loads(line)
                artifacts = known.get("artifacts") or {}
                found = {"score": known["combined_score"], "metrics": known.get("metrics")}
                found["error"] = artifacts.get("error")
                break
    else:
        configs = sorted(folder.glob("config*.yaml"))
        config = str(configs[0]) if configs else ""
        script = OPENEVOLVE if tool == "openevolve" else SKYDISCOVER
        command = [python, "-c", script, str(evaluator), str(program), config]
        found = result_of(command, seconds, **options)
    row.own_metrics = {k: str(v) for k, v in (found.get("metrics") or {}).items()}  # type: ignore
    row.own_reason = str(found.get("error") or "")
    if found.get("score") is not None:
        row.own_score = float(str(found["score"]))


def lacks_something(folder: Path) -> bool:
    """Whether imports of a folder are not installed."""
    try:
        return bool(read_folder(folder).missing.refusal)
    except ValueError:
        return False


@cache
def packages_of(repository: Path) -> str:
    """A folder with what a tool itself depends on, installed once per machine."""
    place = Path(tempfile.gettempdir(), f"costada-folders-{repository.name}")
    if not place.is_dir():
        about = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))
        beside = Path(sys.executable).with_name("uv")
        uv = beside if beside.exists() else "uv"
        command = [uv, "pip", "install", "--quiet", "--python", sys.executable]
        wanted = about["project"]["dependencies"]
        subprocess.run([*map(str, command), "--target", str(place), *wanted], check=True)
    return str(place)


def shortened(text: str, width: int) -> str:
    """The first line of a text that fits."""
    return textwrap.shorten(" ".join(text.split()), width, placeholder=" ...")


def show(rows: Sequence[Row], width: int) -> None:
    """Print the table, and below it how many folders start."""
    print("| folder | contract | start | score | their own | same | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        here = "" if row.score is None else f"{row.score:.8g}"
        there = shortened(row.own_reason, 60) if row.own_score is None else f"{row.own_score:.8g}"
        same = {True: "yes", False: "no", None: ""}[row.is_same]
        start = "valid" if row.is_valid else shortened(row.reason, width).replace("|", "/")
        cells = [row.folder, row.contract, start, here, there, same, f"{row.seconds:.2f}"]
        print("| " + " | ".join(cells) + " |")
    valid, same_rows = sum(row.is_valid for row in rows), sum(row.is_same is True for row in rows)
    compared = sum(row.is_same is not None for row in rows)
    print(f"\n{valid} of {len(rows)} start; of {compared} compared, {same_rows} score the same.")


def row_of(folder: Path, root: Path, options: argparse.Namespace) -> Row:
    """What is found of one folder; said on standard error as well."""
    evaluator = evaluator_of(folder) or folder
    row = Row(os.path.relpath(folder, root), contract_of(folder, evaluator))
    started = monotonic()
    if options.adopt:
        subprocess.run([COSTADA, "adopt", folder], check=False, stdout=sys.stderr)
    if options.prepare and lacks_something(folder):
        subprocess.run([COSTADA, "prepare", folder], check=False, stdout=sys.stderr)
    if not options.own:
        judge_here(row, folder, options.seconds, options.sandbox)
    if not options.here:
        judge_there(row, folder, evaluator, options.seconds)
    state = "valid" if row.is_valid else shortened(row.reason, 150)
    said = row.own_score if row.own_score is not None else shortened(row.own_reason, 80)
    taken = monotonic() - started
    print(f"{row.folder}: {state}; {row.score} / {said} ({taken:.1f} s)", file=sys.stderr)
    return row


def main() -> None:
    """Judge the start of every folder twice and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--prepare", action="store_true", help="make environments first")
    parser.add_argument("--adopt", action="store_true", help="write a problem.toml first")
    parser.add_argument("--seconds", type=float, default=300.0, help="limit of one evaluation")
    parser.add_argument("--sandbox", default="", help="layer of the evaluations here")
    parser.add_argument("--width", type=int, default=200, help="letters of a reason")
    parser.add_argument("--only", default="", help="part of a folder's name")
    parser.add_argument("--json", type=Path, help="where to write everything")
    parser.add_argument("--own", action="store_true", help="only the score with their own tool")
    parser.add_argument("--here", action="store_true", help="only the score here")
    options = parser.parse_args()
    rows = []
    for root in options.paths:
        for folder in problem_folders(root.resolve()):
            if options.only in str(folder):
                rows.append(row_of(folder, root.resolve(), options))
            if options.json:
                options.json.write_text(json.dumps([asdict(each) for each in rows], indent=1))
    show(rows, options.width)


if __name__ == "__main__":
    main()
