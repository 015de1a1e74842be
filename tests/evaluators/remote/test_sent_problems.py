"""What is sent to workers, when, and what a worker refuses."""

import os
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from needed_programs import how_to_install
from remote_engines import threads
from squares import write_squares

from costada.evaluators.consent import ConfirmableFile, confirm
from costada.evaluators.folder_files import EvaluatorFile
from costada.evaluators.folder_settings import read_settings
from costada.evaluators.folders import load_folder
from costada.evaluators.problem import Problem, confine
from costada.evaluators.registry import problem
from costada.evaluators.remote import bundle as bundles
from costada.evaluators.remote.backend import EngineBackend, check_backend
from costada.evaluators.remote.bundle import bundle, unpacked
from costada.evaluators.remote.engine import ExecutorEngine
from costada.evaluators.remote.task import Answer, Task, code_version, setting_of
from costada.evaluators.remote.worker import answer
from costada.evaluators.sandbox.layers import Layer
from costada.values.candidate import Program
from costada.values.evaluation import SANDBOX

pytestmark = pytest.mark.process

RIGHT = Program.of("def square(number):\n    return number ** 2\n")


class Recording(ExecutorEngine):
    """An engine that records how many bytes of problems are sent."""

    def __init__(self, engine):
        self.engine, self.sent, self.name = engine, [], "recording"

    def start(self, calls):
        self.sent += [len(call.arguments[2] or b"") for call in calls]
        return self.engine.start(calls)

    def lost(self, error):
        return self.engine.lost(error)


def recorded(engine, found):
    recording = Recording(engine)
    return confine(replace(found, backend=EngineBackend(recording))), recording.sent


def test_a_folder_is_sent_once_to_each_worker_and_kept_for_the_next(
    worker_engine, tmp_path, cache, monkeypatch
):
    own = tmp_path / "caches"
    monkeypatch.setenv("XDG_CACHE_HOME", str(own))
    found, sent = recorded(worker_engine, load_folder(write_squares(tmp_path / "squares")))
    size = len(setting_of(found)[1])
    scores = [found.evaluate_program(RIGHT, "key").score for _ in range(6)]
    assert scores == [1.0] * 6
    # The first worker lacks the files; the second finds them in the folder of this machine.
    assert sorted(sent) == [0, 0, 0, 0, 0, 0, size]
    [kept] = (own / "costada" / "problems").iterdir()
    assert kept.name == setting_of(found)[0].reference.key
    assert sorted(path.name for path in kept.iterdir()) == [
        *("evaluator.py", "initial_program.py", "problem.md", "problem.toml", "table.json"),
    ]


def test_files_that_a_worker_has_lost_are_sent_again(worker_engine, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    folder = write_squares(tmp_path / "squares", settings="timeout = 20\n")
    (folder / "evaluator.py").write_text(
        "import json, runpy\n"
        "from pathlib import Path\n"
        "TABLE = Path(__file__).with_name('table.json')\n"
        "def evaluate(path):\n"
        "    square = runpy.run_path(path)['square']\n"
        "    right = json.loads(TABLE.read_text())\n"
        "    return {'combined_score': float([square(2), square(3)] == right)}\n"
    )
    found, sent = recorded(worker_engine, load_folder(folder))
    scores = [found.evaluate_program(RIGHT, "key").score for _ in range(3)]
    shutil.rmtree(tmp_path / "caches")
    scores += [found.evaluate_program(RIGHT, "key").score for _ in range(3)]
    assert scores == [1.0] * 6
    assert len([size for size in sent if size]) == 2


def test_a_worker_that_cannot_keep_the_files_names_itself(
    worker_engine, squares, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    found, _ = recorded(worker_engine, load_folder(squares))
    with pytest.raises(OSError, match=r"^worker .*:[0-9]+, problem 'squares': .*Not a directory"):
        found.evaluate_program(RIGHT, "key")


def test_a_link_to_a_file_of_the_folder_is_sent_and_another_is_refused(squares, tmp_path):
    folder = shutil.copytree(squares, tmp_path / "tasks" / "squares")
    (folder / "data").mkdir()
    (folder / "data" / "numbers").write_text("1 2 3")
    (folder / "numbers").symlink_to("data/numbers")
    setting, sent = setting_of(load_folder(folder))
    assert (unpacked(setting.reference.key, sent) / "numbers").read_text() == "1 2 3"
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("secret")
    (folder / ".token").write_text("secret")
    for name, target, found in (
        ("token", ".token", r"/\.token, which is hidden"),
        ("keys", "../../secrets", "/secrets/key, outside of"),
        ("all", "/", "/.*, outside of"),
    ):
        (folder / name).symlink_to(target)
        with pytest.raises(ValueError, match=rf"squares/{name}.* leads to .*{found}"):
            setting_of(load_folder(folder))
        (folder / name).unlink()


def test_a_benchmark_travels_by_name(worker_engine):
    found, sent = recorded(worker_engine, problem("heilbronn_convex"))
    assert found.evaluate_program(found.start, "key").is_valid
    assert sent == [0]


def test_an_object_travels_pickled_and_judges_alike(worker_engine):
    given = Problem(
        name="lengths",
        task="Write a long text.",
        initial_program="x",
        language="text",
        score=length_score,
    )
    found, sent = recorded(worker_engine, given)
    assert found.evaluate_program(Program.of("abc"), "key").score == 3.0
    assert [size > 0 for size in sent] == [False, True]


def length_score(text):
    from costada.values.evaluation import Evaluation

    return Evaluation(score=float(len(text)), objective=float(len(text)), is_valid=True)


def test_an_object_that_cannot_be_pickled_is_refused_before_anything_runs(worker_engine):
    from threading import Lock

    lock = Lock()

    def score(text):
        with lock:
            return length_score(text)

    given = Problem(name="locked", task="Write.", initial_program="x", language="text", score=score)
    found, sent = recorded(worker_engine, given)
    with pytest.raises(ValueError, match="problem 'locked' cannot be sent to workers"):
        check_backend(found)
    assert sent == []


def test_helpers_beside_a_folder_are_sent_with_it(worker_engine, tmp_path):
    folder = write_squares(tmp_path / "tasks" / "squares")
    (tmp_path / "tasks" / "shared_table.py").write_text("TABLE = [4, 9]\n")
    (folder / "table.json").unlink()
    (folder / "problem.toml").write_text("")
    (folder / "evaluator.py").write_text(
        "import runpy, sys\n"
        "from pathlib import Path\n"
        "sys.path.insert(0, str(Path(__file__).parent.parent))\n"
        "from shared_table import TABLE\n"
        "def evaluate(path):\n"
        "    square = runpy.run_path(path)['square']\n"
        "    return {'combined_score': sum(square(n) == n2 for n, n2 in zip((2, 3), TABLE)) / 2}\n"
    )
    found, _ = recorded(worker_engine, load_folder(folder))
    assert found.evaluate_program(RIGHT, "key").score == 1.0


def asked(found, *, version=None, payload=None):
    """The answer of this process as a worker."""
    setting, packed = setting_of(found)
    task = Task(setting, RIGHT, "key", None)
    pickled = answer(version or code_version(), pickle.dumps(task), payload or packed)
    return Answer.from_json(pickled)


def test_another_version_of_the_package_is_refused(here):
    assert asked(here).evaluation.score == 1.0
    other = code_version().replace("costada", "costada 0.0")
    with pytest.raises(ValueError, match=r"worker .* has costada .*; expected costada 0\.0 "):
        asked(here, version=other)


def test_a_weaker_layer_than_asked_for_is_refused_and_a_stronger_one_taken(
    here, worker_engine, tmp_path, monkeypatch, squares
):
    if here.sandbox is not Layer.BUBBLEWRAP:
        pytest.skip(f"{here.sandbox.value} is the strongest layer: {how_to_install('bwrap')}")
    found, _ = recorded(worker_engine, load_folder(squares))
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for path in Path(folder).glob("*"):
            if path.name != "bwrap" and not (programs / path.name).exists():
                (programs / path.name).symlink_to(path)
    monkeypatch.setenv("PATH", str(programs))  # the workers start with it
    with pytest.raises(ValueError, match=r"worker .*weaker than 'bubblewrap' \(.*bwrap"):
        found.evaluate_program(RIGHT, "key")
    weaker = confine(found, sandbox=Layer.PROCESS)
    assert weaker.evaluate_program(RIGHT, "key").artifacts[SANDBOX] == Layer.PROCESS


def test_a_worker_refuses_a_problem_that_it_would_judge_differently(here):
    setting, packed = setting_of(here)
    other = replace(setting, fingerprint="0" * 64)
    task = pickle.dumps(Task(other, RIGHT, "key", None))
    with pytest.raises(ValueError, match="programs may be evaluated differently"):
        answer(code_version(), task, packed)


def test_files_that_do_not_have_the_hash_are_refused(squares, tmp_path, cache):
    one = bundle(squares, ())
    other = write_squares(tmp_path / "other")
    (other / "table.json").write_text("[5, 10]")
    with pytest.raises(ValueError, match=f"expected {'0' * 64}"):
        unpacked("0" * 64, one.archive)
    kept = unpacked(one.digest, one.archive)
    shutil.copy(other / "table.json", kept / "table.json")
    assert unpacked(one.digest, None) is None  # damaged: it is asked for again
    assert (unpacked(one.digest, one.archive) / "table.json").read_text() == "[4, 9]"


def test_the_cache_removes_what_is_unused_for_longest(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(bundles, "MAX_CACHE_BYTES", 1)
    made = []
    for number in range(3):
        folder = write_squares(tmp_path / str(number))
        (folder / "number").write_text(str(number))
        sent = bundle(folder, ())
        made.append(unpacked(sent.digest, sent.archive))
        if number == 0:
            os.utime(made[0], (0, 0))  # not used for a day
    assert [path.is_dir() for path in made] == [False, True, True]


def test_what_is_readable_here_alone_is_refused_by_the_worker(tmp_path, squares):
    data = tmp_path / "data"
    data.write_text("here")
    folder = write_squares(tmp_path / "reading", f'entry_point = "square"\nreadable = ["{data}"]\n')
    found = confine(load_folder(folder))
    setting, packed = setting_of(found)
    data.unlink()
    task = pickle.dumps(Task(setting, RIGHT, "key", None))
    with pytest.raises(ValueError, match=r"readable has .*data.* expected the absolute path"):
        answer(code_version(), task, packed)


def declaring(folder, settings):
    """A confirmed folder whose evaluator declares something, and its problem."""
    write_squares(folder, settings)
    (folder / "evaluator.py").write_text("def evaluate(path): return 1.0\n")
    file = ConfirmableFile(EvaluatorFile(folder, folder / "evaluator.py"))
    needs = read_settings(folder / "problem.toml").needs
    confirm(folder, needs, file, candidate_too=True)
    return confine(load_folder(folder)), needs, file


def test_no_worker_opens_what_an_evaluator_declares(worker_engine, tmp_path, cache, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "asking"
    found, needs, _ = declaring(folder, 'network = ["api.example.org"]\n')
    fault = r"needs the network, .*\. Workers open nothing; expected .*, without --evaluate-on$"
    there = replace(found, backend=EngineBackend(worker_engine))
    with pytest.raises(ValueError, match=fault):
        check_backend(there)
    with pytest.raises(ValueError, match=fault):
        there.evaluate_program(found.start, "key")
    setting, packed = setting_of(found)
    copy = unpacked(setting.reference.key, packed)
    file = ConfirmableFile(EvaluatorFile(copy, copy / "evaluator.py"))
    confirm(copy, needs, file, candidate_too=True)
    with pytest.raises(ValueError, match=fault):
        answer(code_version(), pickle.dumps(Task(setting, found.start, "key", None)), packed)


def test_workers_read_what_was_confirmed_for_the_run(worker_engine, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    note = tmp_path / "note"
    note.write_text("1.0")
    note.chmod(0o600)
    folder = tmp_path / "reading"
    declaring(folder, f'readable = ["{note}"]\n')
    (folder / "evaluator.py").write_text(f"def evaluate(path): return float(open('{note}').read())")
    with pytest.raises(ValueError, match="has changed since you confirmed it"):
        load_folder(folder)
    file = ConfirmableFile(EvaluatorFile(folder, folder / "evaluator.py"))
    confirm(folder, read_settings(folder / "problem.toml").needs, file, candidate_too=False)
    found, _ = recorded(worker_engine, load_folder(folder))
    assert found.evaluate_program(found.start, "key").score == 1.0


def test_resources_that_nothing_assigns_are_noted(worker_engine, here):
    def checked(engine, **fields):
        return check_backend(replace(here, backend=engine and EngineBackend(engine), **fields))

    assert checked(worker_engine) == checked(None) == ""
    assert "gpus = 1 of the problem are reserved only by" in checked(None, gpus=1.0)
    assert "the sandbox opens no GPU to programs" in checked(None, gpus=1.0)
    own = replace(here, score=None, evaluate=lambda _: None, calls=None, arguments={})
    assert "the sandbox" not in check_backend(replace(own, gpus=1.0))
    with threads() as executor:
        note = checked(ExecutorEngine(executor), cpus=4)
    assert note.startswith("evaluate_on: ThreadPoolExecutor is not asked for the problem's cpus")
    assert checked(worker_engine, repeats=3).startswith("repeats = 3: evaluations at the same time")
    assert checked(worker_engine, repeats=3, evaluations_at_once=1) == ""
