"""A repository's score command has what is confirmed; what it starts has not."""

import json
import socket
import threading

import pytest
from made_repositories import make_repository, write

from costada.evaluators.consent import confirm, consent_file
from costada.evaluators.folder_settings import read_settings
from costada.evaluators.folders import load_folder
from costada.evaluators.initial_program import read_text
from costada.evaluators.problem import confine
from costada.evaluators.repository import load_repository, repository_evaluator
from costada.evaluators.slow_functions import slow_functions
from costada.values.candidate import Program

DECLARED = 'network = ["api.example.org"]\nkeys = ["EXAMPLE_KEY"]\n'
BENCH = """
import json, os, socket, subprocess, sys
from helpers.asking import ask
key = os.environ["EXAMPLE_KEY"] == "secret-value"
answer = ask(PORT)
words = [sys.executable, "src/solver.py", str(os.getpid())]
said = subprocess.run(words, capture_output=True, text=True)
if said.returncode: sys.exit(said.stderr)
with open("data/answers.txt") as file: kept = file.read() == "42"
is_right = float(answer == b"42" and key and kept)
print(json.dumps({"combined_score": is_right, **json.loads(said.stdout)}))
"""
ASKING = """
import socket
def ask(port):
    with socket.create_connection(("127.0.0.1", port)) as found: return found.recv(2)
"""
TRYING = """
import json, os, socket, sys, tempfile
import common
def tried(function):
    try: return int(function() is not False)
    except OSError: return 0
print(json.dumps({
    "tcp": tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)),
    "udp": tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
    "key": int("EXAMPLE_KEY" in os.environ),
    "changes answers": tried(lambda: open("data/answers.txt", "w")),
    "changes the command": tried(lambda: open("bench.py", "a")),
    "adds a module": tried(lambda: open("src/json.py", "w")),
    "adds a hook": tried(lambda: os.makedirs(".git/hooks")),
    "reads memory": tried(lambda: open(f"/proc/{sys.argv[1]}/mem", "rb").read(1)),
    "reads its variables": tried(lambda: open(f"/proc/{sys.argv[1]}/environ", "rb").read(1)),
    "signals": tried(lambda: os.kill(int(sys.argv[1]), 0)),
    "uses its temporary folder": tried(lambda: tempfile.TemporaryFile().write(b"x")),
    "imports from the repository": common.ONE,
}))
"""
ALLOWED = {"uses its temporary folder", "imports from the repository"}
FILES = {
    "src/solver.py": TRYING,
    "src/common.py": "ONE = 1\n",
    "helpers/__init__.py": "",
    "helpers/asking.py": ASKING,
    "data/answers.txt": "42",
}


@pytest.fixture
def server():
    """The port of a server that answers 42."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"42")

        threading.Thread(target=answer, daemon=True).start()
        yield listening.getsockname()[1]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("EXAMPLE_KEY", "secret-value")
    return tmp_path


def made(
    place, bench, pattern="src/solver.py", command="python bench.py", settings=DECLARED, **more
):
    """The folder of a repository, and its evaluator as it is without a confirmation."""
    make_repository(place / "repository", {**FILES, "bench.py": bench, **more})
    folder = write(place / "problem", {"problem.md": "Try."})
    (folder / "problem.toml").write_text(
        f'repository = "../repository"\nprogram = "{pattern}"\n'
        f"command = {json.dumps(command)}\n{settings}"
    )
    loaded = load_repository(
        folder, read_settings(folder / "problem.toml"), read_text(folder / "problem.md", folder)
    )
    return folder, repository_evaluator(loaded)


@pytest.mark.process
def test_a_score_command_has_what_is_confirmed_and_what_it_starts_has_not(place, server, confined):
    folder, evaluator = made(place, BENCH.replace("PORT", str(server)))
    with pytest.raises(ValueError, match="to confirm that: costada check"):
        load_folder(folder)
    confirm(folder, evaluator.settings.needs, evaluator, candidate_too=False)
    problem = confine(load_folder(folder), sandbox=confined)
    evaluation = problem.evaluate_program(problem.start)
    assert evaluation.error is None
    assert evaluation.score == 1.0
    found = {name for name, value in evaluation.metrics.items() if value and " " in name}
    assert found == ALLOWED
    assert [evaluation.metrics[name] for name in ("tcp", "udp", "key")] == [0.0] * 3


@pytest.mark.process
def test_without_a_declaration_a_candidate_that_is_started_changes_nothing(place, confined):
    bench = BENCH.replace("ask(PORT)", "b'42'").replace(
        'os.environ["EXAMPLE_KEY"]', '"secret-value"'
    )
    folder, _ = made(place, bench, settings="")
    problem = confine(load_folder(folder), sandbox=confined)
    evaluation = problem.evaluate_program(problem.start)
    assert (evaluation.error, evaluation.score) == (None, 1.0)
    assert {name for name, value in evaluation.metrics.items() if value and " " in name} == ALLOWED


@pytest.mark.parametrize(
    ("bench", "more"),
    [
        ("import solver\n", {}),
        ("from src import solver\n", {}),
        ("import helpers.importing\n", {"helpers/importing.py": "import solver\n"}),
        ("import runpy\nrunpy.run_path('src/solver.py')\n", {}),
        ("import pickle\n", {}),
        ("import sys\nsys.path.insert(0, 'lib')\n", {}),
        ("print(1)\n", {"pattern": "src/*.py"}),
        ("print(1)\n", {"pattern": "**/*.py"}),
        ("print(1)\n", {"command": "python -m bench"}),
        ("print(1)\n", {"command": "pytest -q bench.py"}),
        ("print(1)\n", {"command": "python -S bench.py"}),
        ("print(1)\n", {"command": "sh -c 'python bench.py'"}),
        ("print(1)\n", {"settings": f'{DECLARED}test = "pytest -q"\n'}),
        ("print(1)\n", {"settings": f'{DECLARED}build = "make"\n'}),
    ],
)
def test_a_command_that_may_run_the_candidate_needs_a_second_word(place, bench, more):
    folder, evaluator = made(place, bench, **more)
    assert evaluator.runs_candidate()
    confirm(folder, evaluator.settings.needs, evaluator, candidate_too=False)
    with pytest.raises(ValueError, match="--confirm --candidate-too"):
        load_folder(folder)
    confirm(folder, evaluator.settings.needs, evaluator, candidate_too=True)
    assert load_folder(folder).name == "problem"


@pytest.mark.process
def test_a_layer_that_keeps_candidates_from_nothing_needs_a_second_word(place, invoke):
    folder, evaluator = made(place, "print(1.0)\n")
    confirm(folder, evaluator.settings.needs, evaluator, candidate_too=False)
    assert invoke("check", folder).exit_code == 0
    refused = invoke("check", folder, "--sandbox", "process")
    assert refused.exit_code == 2
    assert "sandbox is 'process', which keeps no candidate from the evaluator" in refused.stderr
    assert refused.stderr.rstrip().endswith("--confirm --candidate-too")
    assert invoke("check", folder, "--confirm", "--candidate-too").exit_code == 0
    assert invoke("check", folder, "--sandbox", "process").exit_code == 0


@pytest.mark.parametrize("change", ["the command", "a file", "the declaration", "the patterns"])
def test_what_changes_after_the_consent_is_asked_for_again(place, change):
    folder, evaluator = made(place, "print(1)\n")
    confirm(folder, evaluator.settings.needs, evaluator, candidate_too=True)
    assert load_folder(folder).name == "problem"
    if change == "a file":
        (place / "repository" / "helpers" / "asking.py").write_text("# other")
    else:
        texts = {
            "the command": ("python bench.py", "python bench.py 1"),
            "the declaration": ("api.example.org", "other.example.org"),
            "the patterns": ("src/solver.py", "src/s*.py"),
        }
        settings = folder / "problem.toml"
        settings.write_text(settings.read_text().replace(*texts[change]))
    with pytest.raises(ValueError, match="has changed since you confirmed it"):
        load_folder(folder)


def test_a_profile_of_a_command_is_refused_until_what_that_needs_is_confirmed(place):
    folder, evaluator = made(place, "print(1)\n")
    confirm(folder, evaluator.settings.needs, evaluator, candidate_too=False)
    problem = load_folder(folder)
    consent_file(folder).unlink()
    with pytest.raises(ValueError, match="to confirm that: costada check"):
        slow_functions(problem, repository_evaluator(problem))


@pytest.mark.process
def test_a_check_shows_what_is_opened_to_a_command_and_whether_candidates_have_it(place, invoke):
    folder, _ = made(
        place,
        "from solver import answer\nprint(answer())\n",
        **{"src/solver.py": "def answer(): return 1.0\n"},
    )
    refused = invoke("check", folder)
    assert refused.exit_code == 2
    assert "may run in the process of the command, with the same access" in refused.stdout
    assert "the values of EXAMPLE_KEY" in refused.stdout
    assert f"costada check {folder} --confirm --candidate-too" in refused.stderr
    assert invoke("check", folder, "--confirm", "--candidate-too").exit_code == 0


BY_NAME = ("conftest.py", "src/conftest.py", "src/sitecustomize.py", "src/json.py", ".git/hooks/x")


def test_no_candidate_of_a_command_apart_has_files_that_run_by_their_name(place):
    folder, evaluator = made(place, "print(1)\n")
    confirm(folder, evaluator.settings.needs, evaluator, candidate_too=False)
    form = load_folder(folder).form
    assert [name for name in (*BY_NAME, "src/solver.py") if form.allows(name)] == ["src/solver.py"]


HOOK = """
import json, os, socket
from pathlib import Path
def tried(function):
    try: function()
    except OSError: return 0
    return 1
print(json.dumps({
    "combined_score": 1.0,
    "reads a file of the user": tried(lambda: open(CANARY).read()),
    "writes beside it": tried(lambda: open(CANARY + "x", "w")),
    "tcp": tried(lambda: socket.socket()),
    "makes a device": tried(lambda: os.mknod("device", 0o20666, os.makedev(1, 3))),
    "finds a key": int("EXAMPLE_KEY" in os.environ),
}), flush=True)
os._exit(0)
"""


@pytest.mark.process
@pytest.mark.parametrize("name", ["src/conftest.py", "src/sitecustomize.py"])
def test_what_a_candidate_runs_by_a_files_name_gains_nothing(place, name, confined):
    canary = place / "canary"
    canary.write_text("CANARY")
    tests = {"src/test_solver.py": "def test_it(): pass\n"}
    command = "python -m pytest -q -p no:cacheprovider -s src"
    folder, _ = made(place, "", "src/*.py", command, "", **tests)
    problem = confine(load_folder(folder), sandbox=confined)
    hook = HOOK.replace("CANARY", repr(str(canary)))
    evaluation = problem.evaluate_program(Program.of({**problem.initial_program, name: hook}))
    assert evaluation.error is None
    gained = {metric for metric, value in evaluation.metrics.items() if value}
    assert gained <= {"combined_score", "eval_time"}
    assert sorted(path.name for path in place.iterdir()) == ["canary", "problem", "repository"]


GIT_HOOK = """
import json, os, subprocess, sys
child = subprocess.run([sys.executable, "src/solver.py"], capture_output=True, text=True)
print(json.dumps({"combined_score": 1.0, "hooks": int(os.path.lexists(".git"))}))
"""


@pytest.mark.process
def test_a_git_hook_that_a_candidate_writes_reaches_no_repository(place, confined):
    folder, _ = made(place, GIT_HOOK, settings="")
    problem = confine(load_folder(folder), sandbox=confined)
    hooks = "import os\nos.makedirs('.git/hooks')\nopen('.git/hooks/post-index-change', 'w')\n"
    before = sorted((place / "repository" / ".git" / "hooks").iterdir())
    evaluation = problem.evaluate_program(
        Program.of({**problem.initial_program, "src/solver.py": hooks})
    )
    assert (evaluation.error, evaluation.metrics["hooks"]) == (None, 0.0)
    assert sorted((place / "repository" / ".git" / "hooks").iterdir()) == before
