"""A file of the evaluator stays its own, whatever a candidate that it starts has done before."""

import subprocess

import pytest

from costada.evaluators.folder_files import EvaluatorFile
from costada.evaluators.registry import problem
from costada.evaluators.sandbox.candidate_runs import run_evaluator
from costada.evaluators.sandbox.limits import Limits

pytestmark = pytest.mark.process

LIMITS = Limits(wall_seconds=60, processes=16)
EVALUATOR = """
import json, os, shutil, subprocess, sys, tempfile
LISTED = ["answers.txt", "stub.py", "settings.json", "runner.py"]
def start(*words, **named):
    words = [sys.executable, *words] if words[0].endswith(".py") else words
    done = subprocess.run(words, text=True, capture_output=True, **named)
    if done.returncode: raise RuntimeError(done.stderr)
    return done.stdout
def evaluate(path):
    STEPS
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "answers.txt").write_text("42")
    (tmp_path / "settings.json").write_text("{}")
    (tmp_path / "stub.py").write_text("raise NotImplementedError\n")
    (tmp_path / "helper.py").write_text("NUMBER = 1\n")
    return tmp_path


def evaluate(folder, steps, source, layer):
    text = EVALUATOR.replace("STEPS", "\n    ".join(steps.strip().splitlines()))
    (folder / "evaluator.py").write_text(text)
    evaluator = EvaluatorFile(folder, folder / "evaluator.py")
    return run_evaluator(source, evaluator, LIMITS, layer, ())


SPOILING = """
import json, os, sys
folder = sys.argv[1]
def tried(function, *words):
    try: function(*words)
    except OSError: return 0
    return 1
def overwrite(path):
    with open(path, "w") as file: file.write("NUMBER = 2\\n")
names = [name for name in os.listdir(folder) if name.endswith((".txt", ".py", ".json"))]
names = [os.path.join(folder, name) for name in names]
print(json.dumps({
    "read": sum(tried(open, name) for name in names),
    "written": sum(tried(overwrite, name) for name in names),
}))
for name in names:
    os.utime(name, (1, 1))
    os.chmod(name, 0)
os.chmod(folder, 0)
"""


def test_a_candidate_that_is_started_again_gains_nothing_by_times_and_modes(confined, folder):
    steps = """
before = {name: os.stat(name) for name in os.listdir()}
said = [json.loads(start(path, os.getcwd())) for _ in range(2)]
after = {name: os.stat(name) for name in os.listdir()}
kept = all(after[name].st_mtime == before[name].st_mtime for name in before)
import helper
return {"kept": kept, "number": helper.NUMBER, "answer": float(open("answers.txt").read()),
    **said[1]}
"""
    result = evaluate(folder, steps, SPOILING, confined)
    assert result.error is None
    expected = {"kept": 1.0, "number": 1.0, "answer": 42.0, "read": 0.0, "written": 0.0}
    assert result.output["metrics"] == expected


REPOSITORY = {
    "bench.py": "import json, subprocess, sys\n"
    "for _ in range(2): subprocess.run([sys.executable, 'solver.py'], check=True)\n"
    "import metrics\n"
    "print(json.dumps({'combined_score': metrics.SCORE}))\n",
    "metrics.py": "SCORE = 1.0\n",
    "solver.py": "print(1)\n",
}
FORGING = """
import os
try: open("metrics.py", "w").write("SCORE = 99.0\\n")
except OSError: pass
os.utime("metrics.py", (1, 1))
"""


def test_what_a_score_command_starts_again_does_not_change_the_repository(
    confined, tmp_path, monkeypatch
):
    repository, place = tmp_path / "repository", tmp_path / "problem"
    repository.mkdir()
    place.mkdir()
    for name, text in REPOSITORY.items():
        (repository / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    (place / "problem.md").write_text("Try.")
    (place / "problem.toml").write_text(
        'repository = "../repository"\nprogram = ["solver.py"]\ncommand = "python bench.py"\n'
        f'sandbox = "{confined}"\n'
    )
    evaluation = problem(place).evaluate({"solver.py": FORGING})
    assert (evaluation.error, evaluation.score) == (None, 1.0)


READING = """
import json, sys
def tried(name, mode):
    try: return int(bool(open(name, mode)))
    except OSError: return 0
print(json.dumps({name: tried("settings.json", mode) for name, mode in
    {"read": "r", "written": "r+"}.items()}))
"""


@pytest.mark.parametrize(
    ("words", "may_read"), [("path", 0.0), ("path, 'settings.json'", 1.0)], ids=["unnamed", "named"]
)
def test_a_file_that_the_evaluator_rewrites_is_read_if_it_is_named_and_never_written(
    confined, folder, words, may_read
):
    steps = f"""
with open("settings.json", "w") as file: json.dump({{"n": 3}}, file)
return json.loads(start({words}))
"""
    result = evaluate(folder, steps, READING, confined)
    assert result.error is None
    assert result.output["metrics"] == {"read": may_read, "written": 0.0}


IMPORTING = """
import json
def is_kept():
    try: open("stub.py", "r+")
    except OSError: return True
if __name__ == "__main__":
    import stub
    print(json.dumps({"number": stub.NUMBER, "is_kept": is_kept()}))
NUMBER = 41
"""


def test_a_copy_in_the_place_of_a_file_of_the_evaluator_is_imported_and_not_rewritten(
    confined, folder
):
    steps = """
shutil.copy(path, "stub.py")
return json.loads(start(shutil.copy(path, "main.py")))
"""
    result = evaluate(folder, steps, IMPORTING, confined)
    assert result.error is None
    assert result.output["metrics"] == {"number": 41.0, "is_kept": 1.0}


def test_what_the_evaluator_removes_the_candidate_may_make(confined, folder):
    (folder / "out.json").write_text("0")
    steps = """
os.remove("out.json")
start(path)
return {"number": float(open("out.json").read())}
"""
    result = evaluate(folder, steps, "open('out.json', 'w').write('41')\n", confined)
    assert (result.error, result.output["metrics"]) == (None, {"number": 41.0})


RUNNER = """
import os, subprocess, sys
import helper
done = subprocess.run([sys.executable, *sys.argv[1:]], text=True, capture_output=True)
if done.returncode: raise SystemExit(done.stderr)
print(helper.NUMBER)
"""
PLANTING = """
import glob, importlib.util, marshal, os, struct, sys
about = os.stat(f"{sys.argv[1]}/helper.py")
code = compile("NUMBER = 2", "helper.py", "exec")
head = struct.pack("<III", 0, int(about.st_mtime), about.st_size)
for path in glob.glob(f"{sys.argv[1]}/__pycache__/helper*"):
    try: open(path, "wb").write(importlib.util.MAGIC_NUMBER + head + marshal.dumps(code))
    except OSError: pass
"""


@pytest.mark.parametrize("keeping", ["", "py_compile.compile('helper.py')"])
def test_a_candidate_changes_no_byte_code_of_a_script_of_the_evaluator(confined, folder, keeping):
    (folder / "runner.py").write_text(RUNNER)
    steps = f"""
import py_compile
{keeping}
kept = {{"TMPDIR": os.environ["TMPDIR"], "PATH": os.environ["PATH"]}}
said = [start("runner.py", path, os.getcwd(), env=kept) for _ in range(2)]
return {{"number": float(said[1]), "has_cache": os.path.exists("__pycache__")}}
"""
    result = evaluate(folder, steps, PLANTING, confined)
    assert result.error is None
    assert result.output["metrics"] == {"number": 1.0, "has_cache": float(bool(keeping))}
