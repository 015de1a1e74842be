"""A folder's own evaluator runs wholly inside the sandbox, together with the candidate."""

import json
import shutil

import pytest
from sandbox_runs import AMPLE, PRELOAD

from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.run import run_evaluator

LOAD = """
import importlib.util, os, pathlib
HERE = pathlib.Path(__file__).parent
def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The place of all evaluators that may stand in the same one: its slots are started once."""
    return tmp_path_factory.mktemp("problem")


def judge(folder, evaluator, source="", layer=Layer.PROCESS, limits=AMPLE):
    folder.mkdir(exist_ok=True)
    (folder / "evaluator.py").write_text(LOAD + evaluator)
    return run_evaluator(source, folder, limits, layer, PRELOAD)


def test_metrics_come_back(layer, folder):
    evaluator = "def evaluate(path): return {'combined_score': load(path).x * 2, 'text': 'good'}"
    result = judge(folder, evaluator, "x = 1.5", layer)
    assert result.error is None
    assert result.output["metrics"] == {"combined_score": 3.0, "text": "good"}


def test_artifacts_come_back(folder):
    evaluator = (
        "class Result:\n    metrics = {'a': 1}\n    artifacts = {'note': b'seen', 'n': 2}\n"
        "def evaluate(path): return Result()"
    )
    output = judge(folder, evaluator).output
    assert output == {"metrics": {"a": 1.0}, "artifacts": {"note": "seen", "n": "2.0"}}


def test_it_may_read_its_folder_and_import_from_it(layer, folder):
    (folder / "data.txt").write_text("7")
    (folder / "helper_of_it.py").write_text("def double(x): return 2 * x")
    evaluator = (
        "import helper_of_it\n"
        "def evaluate(path):\n"
        "    return {'a': helper_of_it.double(int((HERE / 'data.txt').read_text()))}"
    )
    assert judge(folder, evaluator, layer=layer).output["metrics"] == {"a": 14.0}


def test_it_may_not_write_to_its_folder(walled, folder):
    evaluator = "def evaluate(path): (HERE / 'new').write_text('x')"
    result = judge(folder, evaluator, layer=walled)
    assert result.error.startswith(("PermissionError", "OSError: [Errno 30]"))
    assert not (folder / "new").exists()


def test_it_may_write_to_its_working_folder(layer, folder):
    evaluator = "def evaluate(path):\n    open('new', 'w').write('x')\n    return {'a': 1}"
    assert judge(folder, evaluator, layer=layer).error is None


def test_another_folder_stays_out_of_reach(walled, tmp_path):
    (tmp_path / "secret").write_text("CANARY")
    evaluator = "def evaluate(path): return {'a': (HERE.parent / 'secret').read_text()}"
    result = judge(tmp_path / "problem", evaluator, layer=walled)
    assert "secret" in result.error
    assert "CANARY" not in f"{result}"


def test_a_folder_that_was_made_anew_is_read_anew(layer, tmp_path):
    for value in (1, 2):
        place = tmp_path / "problem"
        shutil.rmtree(place, ignore_errors=True)
        result = judge(place, f"def evaluate(path): return {{'a': {value}}}", layer=layer)
        assert (result.error, result.output["metrics"]) == (None, {"a": value})


def test_an_evaluator_that_is_changed_is_read_anew(layer, folder):
    for value in (1, 2):
        result = judge(folder, f"def evaluate(path): return {{'a': {value}}}", layer=layer)
        assert result.output["metrics"] == {"a": value}


@pytest.mark.parametrize(
    ("evaluator", "source", "is_own_fault"),
    [
        ("def evaluate(path): 1 / 0", "", False),
        ("def evaluate(path): load(path)", "1 / 0", True),
        ("def evaluate(path): load(path)", "def f(:", True),
        ("def evaluate(path): load(path).f()", "def f(): 1 / 0", True),
        (
            "def evaluate(path): load(path).f()",
            ("import os\nos.mkdir('a'); os.chdir('a')\ndef f(): 1 / 0"),
            True,
        ),
        ("def evaluate(path): return 7", "", False),
        ("def f(:", "", False),
        ("", "", False),
    ],
)
def test_whose_fault_a_failure_is(folder, evaluator, source, is_own_fault):
    result = judge(folder, evaluator, source)
    assert result.error is not None
    assert result.is_own_fault is is_own_fault


def test_an_evaluator_that_hangs_is_stopped(layer, folder):
    evaluator = "def evaluate(path):\n    while True: pass"
    result = judge(folder, evaluator, layer=layer, limits=Limits(wall_seconds=0.3))
    assert result.error == "timeout: the program exceeded 0.3 s"


def test_a_missing_evaluator_is_told(layer, tmp_path):
    error = run_evaluator("", tmp_path, AMPLE, layer, PRELOAD).error
    assert error.startswith("FileNotFoundError")
    assert "evaluator.py" in error


def foreign_files(folder):
    """Lay out what lies beside an evaluator and is none of its business."""
    run = {"problem": "x", "method": "costada", "budget": 1}
    texts = {
        ".env": "CANARY",
        "notes.txt": "CANARY",
        "data/.key": "CANARY",
        "runs-out/one/program.py": "CANARY",
        "my-run/settings.json": json.dumps(run),
        "my-run/best.py": "CANARY",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    links = {"keys.txt": ".env", "data/plain.txt": ".key", "data/best.txt": "../my-run/best.py"}
    for name, target in links.items():
        (folder / name).symlink_to(target)
    return [*links, *(name for name, text in texts.items() if text == "CANARY")]


READS = """
def reads(name):
    try: return (HERE / name[::-1]).read_text() == 'CANARY'
    except OSError: return False
"""


def test_of_its_folder_it_sees_its_own_files_only(walled, tmp_path):
    secrets = foreign_files(tmp_path)
    own = ["table.csv", "data/case_1.txt", "lib/__init__.py", "lib/deep.py", "more/a.dat"]
    for name in own:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    evaluator = (
        f"{READS}import lib.deep\n"
        "def evaluate(path):\n"
        "    own = [HERE / 'table.csv', *(HERE / 'data' / f'case_{n}.txt' for n in [1])]\n"
        "    own += [*HERE.glob('more/*.dat')]\n"
        "    names = [name for folder, _, names in os.walk(HERE) for name in names]\n"
        f"    secrets = {[name[::-1] for name in secrets]}\n"
        "    return {'own': sum(path.read_text() == '' for path in own),\n"
        "            'foreign': sum(map(reads, secrets)), 'names': ' '.join(names)}"
    )
    output = judge(tmp_path, evaluator, layer=walled).output
    assert (output["metrics"]["own"], output["metrics"]["foreign"]) == (3, 0)
    if walled is Layer.BUBBLEWRAP:
        seen = {"evaluator.py", *(name.rpartition("/")[2] for name in own)}
        assert set(output["metrics"]["names"].split()) == seen


def test_what_its_code_does_not_name_is_declared(walled, tmp_path):
    (tmp_path / "seen").mkdir()
    for name in ("seen/a.npy", "seen/b.txt"):
        (tmp_path / name).write_text("CANARY")
    evaluator = (
        f"{READS}def evaluate(path):\n"
        "    return {'a': reads('ypn.a/nees'), 'b': reads('txt.b/nees')}"
    )
    (tmp_path / "evaluator.py").write_text(LOAD + evaluator)
    for declared, expected in (((), [0, 0]), (("seen/*.npy",), [1, 0])):
        result = run_evaluator("", tmp_path, AMPLE, walled, PRELOAD, declared)
        assert [*result.output["metrics"].values()] == expected


def test_a_file_that_is_replaced_is_seen_as_it_is_now(layer, tmp_path):
    evaluator = "def evaluate(path): return {'a': int((HERE / 'number.txt').read_text())}"
    for number in (1, 2):
        (tmp_path / "new").write_text(str(number))
        (tmp_path / "new").replace(tmp_path / "number.txt")
        assert judge(tmp_path, evaluator, layer=layer).output["metrics"]["a"] == number
