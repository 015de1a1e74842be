"""Which problem folders of OpenEvolve, SkyDiscover and ShinkaEvolve work here, and how they score.

    python bench/folders.py CHECKOUT... [--data FOLDER] [--layers LAYER,LAYER] [--json FILE]

Each checkout of one of the tools is copied. Every folder in it that holds an evaluator and an
initial program then climbs, in each layer of the sandbox, until a run can start:

- unchanged: as it is, with the downloads of its README where --data has them
- adopted: after `costada adopt`
- prepared: after `costada prepare` made an environment, which takes a package index
- declared: with what `folders_declared.toml` says a user has to declare, install or download

One that stays refused has the reason. With `--json`, a repeated command goes on with the folders
and layers that are left.

A user of another tool has an environment with the packages that READMEs of the tool and its
folders install. How many folders start unchanged there is found by the Python of such an
environment, in which CostAda was installed beside the tool; `--beside` adds a column of what it
wrote:

    TOOLS_PYTHON bench/folders.py CHECKOUT --unchanged --layers landlock --data DATA --json BESIDE

The table has the start's score here, and that with the tool which the folder was written for: its
evaluator class (OpenEvolve, SkyDiscover) or its command (ShinkaEvolve, containers) runs in another
process, without anything of CostAda, with the tool's code. With `--here`, it does not run; a row
of `--beside` then gives both scores. Evaluators run here in the sandbox, but with their own tool as
the user: try folders you trust.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

from folders_declared import Declaration, declaration_for
from folders_table import REFUSED, Row, shortened, show

from costada.evaluators.environment import DATA_FOLDER, interpreter_of
from costada.evaluators.folders import read_folder

TOOLS = ("openevolve", "skydiscover", "shinka")
EVALUATORS = ("evaluator.py", "evaluate.py")
PROGRAMS = ("initial_program.*", "init_program.*", "initial.*", "initial_prompt.*")
FOLDERS = ("initial_program",)
SKIPPED = {"best_program", "tests", "legacy", "node_modules"}
COSTADA = Path(sys.executable).with_name("costada")

OPENEVOLVE = """
import asyncio, json, sys
from pathlib import Path
from openevolve.config import Config, load_config
from openevolve.evaluator import Evaluator
from openevolve.utils.metrics_utils import get_fitness_score
evaluator, program, config = sys.argv[1:4]
settings = load_config(config) if config else Config()
tool_evaluator = Evaluator(settings.evaluator, evaluator, suffix=Path(program).suffix)
metrics = asyncio.run(tool_evaluator.evaluate_program(Path(program).read_text()))
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
tool_evaluator = Evaluator(settings.evaluator)
metrics = asyncio.run(tool_evaluator.evaluate_program(Path(program).read_text())).metrics
result = {"score": get_score(metrics), "metrics": {k: str(v) for k, v in metrics.items()}}
print("RESULT " + json.dumps(result))
"""
EVALUATION = """
import json, sys
from costada.cli.command_errors import showing_warnings
from costada.evaluators.problem import confine
from costada.evaluators.registry import problem
from costada.evaluators.sandbox.layers import Layer
found = {}
with showing_warnings():
    for layer in sys.argv[3:]:
        here = confine(problem(sys.argv[1]), sandbox=Layer(layer))
        if here.limits.wall_seconds > float(sys.argv[2]):
            here = confine(here, timeout=float(sys.argv[2]))
        result = here.evaluate_program(here.start, "bench")
        found[layer] = {
            "score": result.objective if result.objective is not None else result.score,
            "starts": result.is_valid or here.allow_invalid_start, "error": result.error,
            "seconds": result.seconds,
            "log": result.artifacts.get("log", "")[-600:],
            "metrics": {k: str(v) for k, v in result.metrics.items()}}
print("RESULT " + json.dumps(found))
"""


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


def evaluate_here(
    row: Row, folder: Path, stage: str, layers: Sequence[str], seconds: float
) -> None:
    """Fill in what CostAda says of the folder's initial program in some layers."""
    command = [sys.executable, "-c", EVALUATION, str(folder), str(seconds), *layers]
    limit = (seconds + 60) * len(layers)
    found = result_of(command, limit, cwd=tempfile.gettempdir())
    row.reason = str(found.get("error", ""))
    for layer in layers:
        result = found.get(layer)
        if not isinstance(result, dict):
            continue
        if not result["starts"]:
            row.reason, row.log = str(result["error"]), str(result["log"])
            continue
        row.stages[layer] = stage
        if row.score is None:
            row.score = float(result["score"])
            row.seconds = float(result["seconds"])
            row.metrics = dict(result["metrics"])


def evaluate_there(row: Row, folder: Path, evaluator: Path, seconds: float) -> None:
    """Fill in what the folder's own tool says of its initial program."""
    tool, repository = tool_of(folder)
    program = program_of(folder)
    if program is None or program.is_dir() or repository is None:
        row.own_reason = "no tool around the folder"
        return
    python = python_of(folder)
    needed = [] if find_spec(tool) else [packages_of(repository)]
    paths = os.pathsep.join([str(repository), *needed])
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


def lacks_packages(folder: Path) -> bool:
    """Whether imports of a folder are not installed."""
    try:
        return bool(read_folder(folder).missing.refusal)
    except ValueError:
        return False


def download(checkout: Path, needed: Declaration, data: Path | None) -> None:
    """Do what a folder's README has a user do first, with what of it is at hand."""
    for name, place in needed.data.items():
        if data is not None and (data / name).exists():
            shutil.copytree(data / name, checkout / place, dirs_exist_ok=True)
    for name, value in needed.environment.items():
        os.environ[name] = value.replace("{checkout}", str(checkout))


def declare(folder: Path, checkout: Path, needed: Declaration) -> None:
    """Do what a user has to do for a folder beyond `adopt` and `prepare`."""
    if needed.script:
        subprocess.run([sys.executable, "-c", needed.script], cwd=folder, check=True)
    text = needed.settings.replace("{checkout}", str(checkout))
    names = {line.partition("=")[0].strip() for line in text.splitlines()}
    settings = folder / "problem.toml"
    # What `adopt` wrote gives way to what is declared.
    old = settings.read_text("utf-8").splitlines() if settings.is_file() else []
    kept = [line for line in old if line.partition("=")[0].strip() not in names]
    settings.write_text("\n".join([*kept, text, ""]), encoding="utf-8")
    if needed.packages:
        words = (word for each in needed.packages for word in ("--with", each))
        said([COSTADA, "prepare", folder, *words])
    if "keys" in names:
        said([COSTADA, "check", folder, "--confirm", "--candidate-too"])


def said(command: Sequence[str | Path]) -> bool:
    """Whether a command of CostAda succeeds; what it prints goes to standard error."""
    done = subprocess.run([*map(str, command)], check=False, stdout=sys.stderr, timeout=1800)
    return done.returncode == 0


@cache
def packages_of(repository: Path) -> str:
    """A folder with what a tool itself depends on, installed once."""
    place = repository.with_name(f"{repository.name}-packages")
    if not place.is_dir():
        about = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))
        beside = Path(sys.executable).with_name("uv")
        uv = beside if beside.exists() else "uv"
        command = [uv, "pip", "install", "--quiet", "--python", sys.executable]
        wanted = about["project"]["dependencies"]
        subprocess.run([*map(str, command), "--target", str(place), *wanted], check=True)
    return str(place)


def climb(row: Row, folder: Path, checkout: Path, options: argparse.Namespace) -> None:
    """Fill in what is found of one folder in the layers that its row lacks; printed as well."""
    evaluator = evaluator_of(folder) or folder
    row.contract = contract_of(folder, evaluator)
    needed = declaration_for(row.folder)
    environment = dict(os.environ)
    started = monotonic()

    def remaining() -> list[str]:
        return [each for each in options.layers if each not in row.stages]

    def try_as(stage: str) -> None:
        if layers := remaining():
            evaluate_here(row, folder, stage, layers, options.seconds)

    download(checkout, needed, options.data)
    try_as("unchanged")
    if remaining() and not (options.unchanged or needed.missing):
        said([COSTADA, "adopt", folder])
        if not lacks_packages(folder):
            try_as("adopted")
        elif said([COSTADA, "prepare", folder]):
            try_as("prepared")
        if remaining() and needed.asks_for_something:
            declare(folder, checkout, needed)
            try_as("declared")
    if refused := remaining():
        row.stages |= dict.fromkeys(refused, REFUSED)
        row.reason = needed.missing or row.reason
    if not (options.here or row.has_own or needed.missing):
        evaluate_there(row, folder, evaluator, options.seconds)
    for place in needed.data.values():  # which other folders begin without
        shutil.rmtree(checkout / place, ignore_errors=True)
    os.environ.clear()
    os.environ.update(environment)
    there = row.own_score if row.own_score is not None else shortened(row.own_reason, 80)
    reason = shortened(row.reason, 150) if REFUSED in row.stages.values() else ""
    print(f"{row.folder}: {row.stages} {reason}", file=sys.stderr)
    print(f"  {row.score} / {there} ({monotonic() - started:.1f} s)", file=sys.stderr)


def rows_in(path: Path) -> dict[str, Row]:
    """Rows that were written before, by folder."""
    return {each["folder"]: Row(**each) for each in json.loads(path.read_text())}


def main() -> None:
    """Try every folder of the copies and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs="+", type=Path, metavar="CHECKOUT")
    parser.add_argument("--data", type=Path, help="folder with what the declared folders download")
    parser.add_argument(
        "--layers", type=lambda text: text.split(","), default=["landlock", "bubblewrap"]
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="limit of one evaluation")
    parser.add_argument("--width", type=int, default=200, help="letters of a reason")
    parser.add_argument(
        "--beside",
        type=Path,
        nargs="+",
        default=[],
        help="what --json wrote in tools' environments",
    )
    parser.add_argument("--only", default="", help="part of a folder's name")
    parser.add_argument("--unchanged", action="store_true", help="try nothing but that")
    parser.add_argument("--here", action="store_true", help="no scores with their own tool")
    parser.add_argument(
        "--json", type=Path, help="where everything is written, and read if repeated"
    )
    options = parser.parse_args()
    rows = rows_in(options.json) if options.json and options.json.exists() else {}
    with tempfile.TemporaryDirectory(prefix="costada-folders-") as place:
        os.environ[DATA_FOLDER] = str(Path(place, "data"))
        for given in options.checkouts:
            words = ["git", "-C", str(given), "rev-parse", "--short", "HEAD"]
            commit = subprocess.run(
                words, capture_output=True, text=True, check=True
            ).stdout.strip()
            checkout = Path(place, given.resolve().name)
            shutil.copytree(given, checkout, ignore=shutil.ignore_patterns(".git"))
            found = [each for each in problem_folders(checkout) if tool_of(each)[1] == checkout]
            print(f"{checkout.name} ({commit}): {len(found)} folders", file=sys.stderr)
            for folder in found:
                name = str(folder.relative_to(place))
                row = rows.get(name) or Row(name)
                is_done = row.stages.keys() >= set(options.layers)
                if options.only not in name or (is_done and (options.here or row.has_own)):
                    continue
                rows[name] = row
                climb(row, folder, checkout, options)
                if options.json:
                    everything = [asdict(each) for each in rows.values()]
                    options.json.write_text(json.dumps(everything, indent=1))
    beside = {name: row for path in options.beside for name, row in rows_in(path).items()}
    show([*rows.values()], options.layers, beside, options.width)


if __name__ == "__main__":
    main()
