"""GPUs and a container engine are opened to an evaluator that declares them, and to it alone."""

import os
import socket
import stat
import tempfile
import threading
from pathlib import Path

import pytest
from made_repositories import write

from costada.evaluators.consent import ConfirmableFile, Needs, confirm, consent_fault
from costada.evaluators.folder_files import EvaluatorFile
from costada.evaluators.folders import load_folder
from costada.evaluators.problem import confine
from costada.evaluators.sandbox import opened
from costada.evaluators.sandbox.opened import assigned_gpus, engine_socket, gpus_here

NODES = ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "dri/renderD128")
ZERO = os.makedev(1, 5)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(opened, "DEVICES", tmp_path / "dev")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "dev" / "dri").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def nodes(place):
    """Device nodes in the place of those of GPUs: they read as zeros."""
    for name in NODES:
        try:
            os.mknod(place / "dev" / name, 0o666 | stat.S_IFCHR, ZERO)
        except PermissionError:
            pytest.skip("making device nodes needs root")
    return place / "dev"


@pytest.fixture
def plain_nodes(place):
    """Files in the place of device nodes, where only their names count."""
    write(place / "dev", dict.fromkeys(NODES, ""))
    return place / "dev"


def test_a_gpu_is_its_own_node_and_those_that_cuda_shares(plain_nodes, monkeypatch):
    shared = tuple(str(plain_nodes / name) for name in ("nvidiactl", "nvidia-uvm"))
    both = [(str(plain_nodes / f"nvidia{number}"), *shared) for number in (0, 1)]
    assert gpus_here("nvidia") == both
    assert gpus_here("dri") == [(str(plain_nodes / "dri" / "renderD128"),)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert gpus_here("nvidia") == both[1:]


def test_a_gpu_is_assigned_to_one_evaluation_at_a_time(plain_nodes):
    happened = []

    def second():
        with assigned_gpus("dri", 1):
            happened.append("assigned again")

    with assigned_gpus("dri", 1) as first:
        waiting = threading.Thread(target=second)
        waiting.start()
        assert first == (str(plain_nodes / "dri" / "renderD128"),)
        happened.append("in use")
    waiting.join()
    assert happened == ["in use", "assigned again"]


def test_two_evaluations_have_different_gpus_and_fractions_share_one(plain_nodes):
    with assigned_gpus("nvidia", 1) as first, assigned_gpus("nvidia", 0.5) as second:
        assert [nodes[0][-1] for nodes in (first, second)] == ["0", "1"]
        with assigned_gpus("nvidia", 0.5) as third:
            assert third == second
    with assigned_gpus("nvidia", 2) as both:
        assert [path[-1] for path in both[:1]] == ["0"]
        assert str(plain_nodes / "nvidia1") in both


def test_locks_of_gpus_are_not_kept_where_somebody_else_has_made_a_link(
    plain_nodes, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"costada-gpus-{os.getuid()}").symlink_to(tmp_path)
    with (
        pytest.raises(PermissionError, match="is not a folder of this user"),
        assigned_gpus("nvidia", 1),
    ):
        pass


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        (Needs(gpus=1), "gpus is 1, and this machine has 0 with device nodes of nvidia"),
        (Needs(gpus=1, gpu_driver="dri"), "this machine has 0 with device nodes of dri"),
        (Needs(docker=True), "docker is true, and there is no socket of a container engine here"),
    ],
)
def test_what_is_not_here_is_refused_with_the_reason(place, needs, reason, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{place}/none")
    folder = write(place / "problem", {"evaluator.py": "def evaluate(path): return {}\n"})
    evaluator = ConfirmableFile(EvaluatorFile(folder, folder / "evaluator.py"))
    assert "to confirm that: costada check" in consent_fault(folder, needs, evaluator)
    confirm(folder, needs, evaluator, candidate_too=False)
    assert reason in consent_fault(folder, needs, evaluator)


def test_a_check_says_that_docker_equals_root():
    [said] = Needs(docker=True).described()
    assert "equals root on this machine" in said


def test_an_engine_on_another_machine_is_not_taken_for_one_here(place, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    assert engine_socket() == ""


BOTH = """
import json, os, socket, subprocess, sys
TRY = '''
import json, os, socket, sys
def reads(path):
    try: return int(open(path, "rb").read(1) == bytes(1))
    except OSError: return 0
def asks(path):
    try:
        with socket.socket(socket.AF_UNIX) as found:
            found.connect(path)
            return int(found.recv(2) == b"OK")
    except OSError: return 0
def tried(function):
    try: function()
    except OSError: return 0
    return 1
def all_of():
    found = {name: reads("DEV/" + name) for name in NODES}
    found["engine"] = asks("SOCKET")
    found["mknod"] = tried(lambda: os.mknod("made", 0o20666, os.makedev(1, 5)))
    found["told"] = int("DOCKER_HOST" in os.environ)
    found["network"] = tried(lambda: socket.socket(socket.AF_INET))
    return found
'''
exec(TRY)
def evaluate(path):
    said = subprocess.run([sys.executable, path], capture_output=True, text=True)
    if said.returncode: raise RuntimeError(said.stderr)
    theirs = {"candidate " + name: value for name, value in json.loads(said.stdout).items()}
    return {"combined_score": 1.0, **all_of(), **theirs}
"""


@pytest.fixture
def engine(monkeypatch):
    """The socket of a server that stands in for an engine; its path must be short."""
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        socket.socket(socket.AF_UNIX) as listening,
    ):
        path = f"{os.path.realpath(folder)}/engine.sock"
        listening.bind(path)
        listening.listen()

        def answer():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"OK")

        threading.Thread(target=answer, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        yield path


def opened_in(place, layer, settings, engine_path, source=BOTH):
    """What an evaluator with these settings reaches."""
    names = repr(NODES)
    text = source.replace("NODES", names).replace("DEV", str(place / "dev"))
    text = text.replace("SOCKET", engine_path)
    tried = text.partition("'''")[2].partition("'''")[0]
    files = {
        "evaluator.py": text,
        "problem.md": "Try.",
        "initial_program.py": f"{tried}\nprint(json.dumps(all_of()))\n",
        "problem.toml": settings,
    }
    folder = write(place / "problem", files)
    evaluator = ConfirmableFile(EvaluatorFile(folder, folder / "evaluator.py"))
    needs = Needs(gpus=float("gpus" in settings), docker="docker" in settings)
    confirm(folder, needs, evaluator, candidate_too=True)
    problem = confine(load_folder(folder), sandbox=layer)
    evaluation = problem.evaluate_program(problem.start)
    assert evaluation.error is None
    return {name for name, value in evaluation.metrics.items() if value} - {"combined_score"}


@pytest.mark.process
def test_the_nodes_of_the_assigned_gpu_are_opened_and_no_others(place, nodes, confined, engine):
    found = opened_in(place, confined, "gpus = 1\n", engine)
    assert found == {"nvidia0", "nvidiactl", "nvidia-uvm"}


@pytest.mark.process
def test_the_engines_socket_is_opened_and_neither_device_nor_network(
    place, nodes, confined, engine
):
    assert opened_in(place, confined, "docker = true\n", engine) == {"engine", "told"}


@pytest.mark.process
def test_without_a_declaration_nothing_is_opened(place, nodes, confined, engine):
    assert opened_in(place, confined, "", engine) == set()
    assert Path(engine).exists()
