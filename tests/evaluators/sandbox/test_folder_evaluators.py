"""A folder's own evaluator runs wholly inside the sandbox, together with the candidate."""

import json
import shutil

import pytest
from sandbox_runs import AMPLE, PRELOAD, run

from costada.evaluators.folder_files import EvaluatorFile
from costada.evaluators.sandbox.candidate_runs import run_evaluator
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits

pytestmark = pytest.mark.process

LOAD = """
import importlib.util, os, pathlib
HERE = pathlib.Path(__file__).parent
def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
def reads(name):
    try: return (HERE / name[::-1]).read_text() == 'CANARY'
    except OSError: return False
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The place of all evaluators that may share one: its slots are started once."""
    return tmp_path_factory.mktemp("problem")


def evaluate(folder, evaluator, source="", layer=Layer.PROCESS, limits=AMPLE, files=()):
    folder.mkdir(exist_ok=True)
    (folder / "evaluator.py").write_text(LOAD + evaluator)
    evaluator_file = EvaluatorFile(folder, folder / "evaluator.py", files=files)
    return run_evaluator(source, evaluator_file, limits, layer, PRELOAD)


def test_metrics_come_back(layer, folder):
    evaluator = "def evaluate(path): return {'combined_score': load(path).x * 2, 'text': 'good'}"
    result = evaluate(folder, evaluator, "x = 1.5", layer)
    assert result.error is None
    assert result.output["metrics"] == {"combined_score": 3.0, "text": "good"}


def test_artifacts_come_back(folder):
    evaluator = (
        "class Result:\n    metrics = {'a': 1}\n    artifacts = {'note': b'seen', 'n': 2}\n"
        "def evaluate(path): return Result()"
    )
    output = evaluate(folder, evaluator).output
    artifacts = {"note": "seen", "n": "2.0"}
    assert output == {"metrics": {"a": 1.0}, "artifacts": artifacts, "averaged": ["a"]}


def test_it_may_read_its_folder_and_import_from_it_and_write_to_its_working_folder(layer, folder):
    (folder / "data.txt").write_text("7")
    (folder / "helper_of_it.py").write_text("def double(x): return 2 * x")
    evaluator = (
        "import helper_of_it\n"
        "def evaluate(path):\n"
        "    open('new', 'w').write('x')\n"
        "    return {'a': helper_of_it.double(int((HERE / 'data.txt').read_text()))}"
    )
    assert evaluate(folder, evaluator, layer=layer).output["metrics"] == {"a": 14.0}


def test_what_it_writes_to_its_folder_ends_with_the_evaluation(confined, tmp_path):
    folder = tmp_path / "problem"
    evaluator = (
        "def evaluate(path):\n"
        "    before = (HERE / 'new').exists()\n"
        "    (HERE / 'new').write_text('x')\n"
        "    (HERE / 'evaluator.py').write_text('')\n"
        "    return {'before': before}"
    )
    for _ in range(2):
        result = evaluate(folder, evaluator, layer=confined)
        assert (result.error, result.output and result.output["metrics"]) == (None, {"before": 0.0})
    assert [path.name for path in folder.iterdir()] == ["evaluator.py"]
    assert (folder / "evaluator.py").read_text() == LOAD + evaluator


def test_it_may_not_read_what_is_beside_its_folder(confined, tmp_path):
    (tmp_path / "secret").write_text("CANARY")
    read = (
        f"def evaluate(path): return {{'a': pathlib.Path({str(tmp_path)!r}, 'secret').read_text()}}"
    )
    result = evaluate(tmp_path / "problem", read, layer=confined)
    assert "secret" in result.error
    assert "CANARY" not in f"{result}"


WORKS = """
import multiprocessing, subprocess, sys
from multiprocessing import shared_memory
def square(x): return x * x
def evaluate(path):
    if any(key.startswith('COSTADA') for key in os.environ): raise SystemExit
    relative = open('data/cases.txt').read()
    os.chdir('data')
    moved = open('cases.txt').read()
    with multiprocessing.get_context('spawn').Lock(): pass
    with multiprocessing.Pool(2) as pool: squares = pool.map(square, [1, 2])
    block = shared_memory.SharedMemory(create=True, size=10)
    block.close(); block.unlink()
    pathlib.Path('tool.c').write_text('int main(void){return 7;}')
    subprocess.run(['gcc', 'tool.c', '-o', 'tool'], check=True)
    status = subprocess.run(['./tool']).returncode
    return {'lengths': len(relative) + len(moved), 'sum': sum(squares), 'status': status}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_it_may_start_build_and_execute_what_it_needs(confined, tmp_path):
    write_all(tmp_path, {"data/cases.txt": "four"})
    limits = Limits(wall_seconds=60, processes=16)
    result = evaluate(tmp_path, WORKS, layer=confined, limits=limits)
    assert result.error is None
    assert result.output["metrics"] == {"lengths": 8.0, "sum": 5.0, "status": 7.0}


OWN_MAPS = """
import multiprocessing
def length(_):
    try: return len(open('/proc/self/maps').read())
    except PermissionError: return -1
def evaluate(path):
    with multiprocessing.Pool(1) as pool: (of_child,) = pool.map(length, [0])
    return {'own': length(0), 'of_child': of_child}
"""


def test_its_processes_read_their_own_maps_where_they_have_their_own_list(confined, tmp_path):
    limits = Limits(wall_seconds=60, processes=16)
    metrics = evaluate(tmp_path, OWN_MAPS, layer=confined, limits=limits).output["metrics"]
    has_list = confined.implementation.has_filesystem
    assert [metrics["own"] > 0, metrics["of_child"] > 0] == [True, has_list]


STARTING = """
import subprocess, sys
def evaluate(path):
    done = subprocess.run([sys.executable, path], capture_output=True, text=True)
    return {'refused': done.stdout.count('refused')}
"""
READING = """
for path in ("/proc/1/cmdline", "/proc/mounts", "/proc/net/tcp", "/proc/self/environ"):
    try: open(path).read()
    except PermissionError: print("refused")
"""


def test_a_candidate_that_it_starts_reads_nothing_of_processes(confined, tmp_path):
    limits = Limits(wall_seconds=60, processes=16)
    result = evaluate(tmp_path, STARTING, READING, layer=confined, limits=limits)
    assert result.output["metrics"] == {"refused": 4.0}


@pytest.mark.parametrize("is_new_folder", [True, False])
def test_an_evaluator_or_folder_that_is_replaced_is_read_again(layer, tmp_path, is_new_folder):
    folder = tmp_path / "problem"
    for value in (1, 2):
        if is_new_folder:
            shutil.rmtree(folder, ignore_errors=True)
        result = evaluate(folder, f"def evaluate(path): return {{'a': {value}}}", layer=layer)
        assert (result.error, result.output["metrics"]) == (None, {"a": value})


def test_a_file_that_is_replaced_is_seen_as_it_is_now(layer, tmp_path):
    evaluator = "def evaluate(path): return {'a': int((HERE / 'number.txt').read_text())}"
    for number in (1, 2):
        (tmp_path / "new").write_text(str(number))
        (tmp_path / "new").replace(tmp_path / "number.txt")
        assert evaluate(tmp_path, evaluator, layer=layer).output["metrics"]["a"] == number


@pytest.mark.parametrize(
    ("evaluator", "source", "is_own_fault"),
    [
        ("def evaluate(path): 1 / 0", "", False),
        ("def evaluate(path): load(path)", "1 / 0", True),
        ("def evaluate(path): load(path)", "def f(:", True),
        ("def evaluate(path): load(path).f()", "def f(): 1 / 0", True),
        (
            "def evaluate(path): load(path).f()",
            "import os\nos.mkdir('a'); os.chdir('a')\ndef f(): 1 / 0",
            True,
        ),
        ("def evaluate(path): return []", "", False),
        ("def f(:", "", False),
        ("", "", False),
    ],
)
def test_whose_fault_a_failure_is(folder, evaluator, source, is_own_fault):
    result = evaluate(folder, evaluator, source)
    assert result.error is not None
    assert result.is_own_fault is is_own_fault


def test_an_evaluator_that_hangs_or_is_missing_is_reported(layer, folder, tmp_path):
    hang = "def evaluate(path):\n    while True: pass"
    result = evaluate(folder, hang, layer=layer, limits=Limits(wall_seconds=0.3))
    assert result.error == "timeout: the program exceeded 0.3 s"
    absent = EvaluatorFile(tmp_path, tmp_path / "evaluator.py")
    error = run_evaluator("", absent, AMPLE, layer, PRELOAD).error
    assert error.startswith("FileNotFoundError")
    assert "evaluator.py" in error


def write_all(folder, texts):
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_of_its_folder_it_sees_its_own_files_only(confined, tmp_path):
    run = json.dumps({"problem": "x", "method": "costada", "budget": 1})
    secrets = [".env", "notes.txt", "data/.key", "runs-out/one/program.py", "my-run/best.py"]
    write_all(tmp_path, dict.fromkeys(secrets, "CANARY") | {"my-run/settings.json": run})
    links = {"keys.txt": ".env", "data/plain.txt": ".key", "data/best.txt": "../my-run/best.py"}
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    own = ["table.csv", "data/case_1.txt", "lib/__init__.py", "lib/deep.py", "more/a.dat"]
    write_all(tmp_path, dict.fromkeys(own, ""))
    evaluator = (
        "import lib.deep\n"
        "def evaluate(path):\n"
        "    own = [HERE / 'table.csv', *(HERE / 'data' / f'case_{n}.txt' for n in [1])]\n"
        "    own += [*HERE.glob('more/*.dat')]\n"
        "    names = [name for folder, _, names in os.walk(HERE) for name in names]\n"
        f"    secrets = {[name[::-1] for name in [*secrets, *links]]}\n"
        "    return {'own': sum(path.read_text() == '' for path in own),\n"
        "            'foreign': sum(map(reads, secrets)), 'names': ' '.join(names)}"
    )
    metrics = evaluate(tmp_path, evaluator, layer=confined).output["metrics"]
    assert (metrics["own"], metrics["foreign"]) == (3, 0)
    if confined is Layer.BUBBLEWRAP:
        seen = {"evaluator.py", *(name.rpartition("/")[2] for name in own)}
        assert set(metrics["names"].split()) == seen


def test_what_its_code_does_not_name_is_declared(confined, tmp_path):
    write_all(tmp_path, {"seen/a.npy": "CANARY", "seen/b.txt": "CANARY"})
    both = "def evaluate(path):\n    return {'a': reads('ypn.a/nees'), 'b': reads('txt.b/nees')}"
    for declared, expected in (((), [0, 0]), (("seen/*.npy",), [1, 0])):
        result = evaluate(tmp_path, both, layer=confined, files=declared)
        assert [*result.output["metrics"].values()] == expected


def test_it_imports_what_a_module_offers_that_the_server_loads_by_its_name(
    layer, tmp_path, monkeypatch
):
    offering = (
        "import sys, types\n"
        "def offer():\n"
        "    sys.modules['their_tool'] = types.ModuleType('their_tool')\n"
        "    sys.modules['their_tool'].answer = 42.0\n"
    )
    package = tmp_path / "modules"
    about = package / "their_tool-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Name: their-tool\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[costada.compat_modules]\ntheirs = offers_their_tool\n"
    )
    (package / "offers_their_tool.py").write_text(offering)
    monkeypatch.syspath_prepend(package)
    evaluator = "import their_tool\ndef evaluate(path): return {'a': their_tool.answer}"
    assert evaluate(tmp_path / "problem", evaluator, layer=layer).output["metrics"] == {"a": 42.0}
    candidate = run("import their_tool\ndef f(): return their_tool.answer", layer, preload=())
    assert candidate.error.startswith("ModuleNotFoundError: No module named 'their_tool'")
