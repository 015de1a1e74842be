import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from time import monotonic, sleep

import pytest

from costada.evaluators.registry import problem, problem_names
from costada.reports.summary import evaluation_text
from costada.values.evaluation import Evaluation

pytestmark = pytest.mark.process

COSTADA = Path(sys.executable).with_name("costada")
SLEEPING = "import time\ndef run_packing():\n    open('begun', 'w').close()\n    time.sleep(60)\n"


@pytest.fixture
def program(tmp_path):
    """Write a program into a file."""

    def write(text):
        path = tmp_path / "program.py"
        path.write_text(text)
        return path

    return write


def test_an_evaluation_says_the_score_and_the_seconds_once(invoke, near):
    result = invoke("evaluate", near, near / "initial_program.py")
    assert result.exit_code == 0
    assert "valid      yes" in result.stdout
    assert "objective  0.6\n" in result.stdout
    assert "score      0.6\n" in result.stdout
    assert "combined_score" not in result.stdout
    assert "eval_time" not in result.stdout


def test_a_metric_that_is_called_like_the_score_but_differs_is_shown():
    metrics = {"combined_score": 3.0, "gap": 0.5, "validity": 1.0}
    found = Evaluation(score=0.6, objective=60.0, is_valid=True, metrics=metrics)
    lines = evaluation_text(found, None).splitlines()
    assert [line for line in lines if " = " in line] == [
        "  combined_score = 3",
        "  gap = 0.5",
        "  validity = 1",
    ]


def test_an_evaluation_as_json_holds_every_field(invoke, near):
    result = invoke("evaluate", near, near / "initial_program.py", "--json")
    verdict = json.loads(result.stdout)
    assert verdict["score"] == verdict["objective"] == pytest.approx(0.6)
    assert verdict["is_valid"] is True
    assert verdict["error"] is None
    assert verdict["metrics"]["combined_score"] == pytest.approx(0.6)
    assert verdict["artifacts"] == {}
    assert verdict["seconds"] > 0
    assert verdict["sandbox"] in ("process", "landlock", "bubblewrap")


def test_the_layer_asked_for_is_the_one_that_is_named(invoke, near):
    seed = near / "initial_program.py"
    result = invoke("evaluate", near, seed, "--json", "--sandbox", "process")
    assert json.loads(result.stdout)["sandbox"] == "process"
    assert "sandbox    process" in invoke("evaluate", near, seed, "--sandbox", "process").stdout


def test_a_program_that_fails_is_an_answer_with_a_reason(invoke, program):
    path = program("def run_packing():\n    return 1 / 0\n")
    result = invoke("evaluate", "circle_packing", path)
    assert result.exit_code == 0
    assert "valid      no" in result.stdout
    assert "objective  none" in result.stdout
    assert "ZeroDivisionError" in result.stdout


def test_what_a_program_printed_is_shown_without_harm_to_the_terminal(invoke, program):
    noisy = "for n in range(99): print('line', n, '\\x1b[31m')\ndef run_packing(): return 0\n"
    text = invoke("evaluate", "circle_packing", program(noisy)).stdout
    assert "log:\nline 0 " in text
    assert "line 98 " in text
    assert "line 50 " not in text
    assert "[the beginning and the end of " in text
    assert " characters; --json prints them all]" in text
    assert "\x1b" not in text


def test_the_use_of_a_tolerance_is_noted(invoke, program):
    one_circle = (
        "import numpy as np\ndef run_packing():\n    radii = np.zeros(26)\n"
        "    radii[0] = 0.5 + 5e-7\n    centers = np.full((26, 2), 0.5)\n"
        "    centers[1:] = 0.0\n    return centers, radii, radii.sum()\n"
    )
    text = invoke("evaluate", "circle_packing", program(one_circle)).stdout
    assert "valid      yes" in text
    assert "tolerance " in text


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [("--timeout", "0.5", "timeout: the program exceeded 0.5 s"), ("--memory-mb", "64", "memory")],
)
def test_limits_can_be_set(invoke, program, option, value, reason):
    hungry = "def run_packing():\n    held = []\n    while True: held.append(bytearray(10**7))\n"
    path = program(hungry if option == "--memory-mb" else SLEEPING)
    verdict = json.loads(invoke("evaluate", "circle_packing", path, "--json", option, value).stdout)
    assert not verdict["is_valid"]
    assert reason in verdict["error"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--sandbox", "jail"], "--sandbox: got 'jail', expected 'auto', 'process'"),
        (["--timeout", "0"], "--timeout: got 0.0, expected greater than 0"),
        (["--memory-mb", "0"], "--memory-mb: got 0, expected greater than or equal to 16"),
        (["--memory-mb", str(2**60)], f"memory_mb is {2**60}; expected at most {2**40}"),
    ],
)
def test_wrong_limits_are_refused(invoke, near, options, text):
    result = invoke("evaluate", near, near / "initial_program.py", *options)
    assert result.exit_code == 2
    assert text in result.output


NATIVE = {
    "problem.md": "Return a number.",
    "problem.toml": 'entry_point = "value"\n',
    "initial_program.py": "def value():\n    return 1.0\n",
    "evaluator.py": (
        "import ctypes\n"
        "def score(output):\n"
        "    is_dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)\n"
        "    return {'combined_score': output, 'is_dumpable': is_dumpable}\n"
    ),
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="an option of Linux")
@pytest.mark.parametrize("layer", ["process", "auto"])
def test_no_program_may_read_the_memory_of_a_command(tmp_path, layer):
    for name, text in NATIVE.items():
        (tmp_path / name).write_text(text)
    options = ["--sandbox", layer, "--json"]
    command = [COSTADA, "evaluate", tmp_path, tmp_path / "initial_program.py", *options]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(found.stdout)["metrics"]["is_dumpable"] == 0


def test_a_program_that_is_not_there_is_refused(invoke, tmp_path):
    result = invoke("evaluate", "circle_packing", tmp_path / "nothing.py")
    assert result.exit_code == 2
    assert "nothing.py: No such file or directory" in result.output


def test_a_program_that_is_no_text_fails_with_that_reason(invoke, tmp_path):
    path = tmp_path / "program.py"
    path.write_bytes(b"\xff\xfe\x00")
    result = invoke("evaluate", "circle_packing", path)
    assert result.exit_code == 0
    assert "the program is not UTF-8 text" in result.stdout


def folder_with(evaluator, folder):
    for name, text in {
        "problem.md": "Do something.",
        "problem.toml": 'entry_point = "f"',
        "initial_program.py": "def f():\n    number = 1.5\n    return number\n",
        "evaluator.py": evaluator,
    }.items():
        (folder / name).write_text(text)
    return folder


def test_an_evaluator_that_breaks_is_no_answer(invoke, tmp_path):
    folder = folder_with("def score(output): return output['x']\n", tmp_path)
    result = invoke("evaluate", folder, folder / "initial_program.py")
    assert result.exit_code == 1
    assert "the score function failed: TypeError" in result.stdout


@pytest.mark.parametrize("command", ["evaluate", "run --dry-run"])
def test_what_is_taken_over_from_other_settings_and_what_the_score_is_made_of_is_said_once(
    invoke, tmp_path, command
):
    folder = folder_with("def evaluate(path): return {'speed_score': 1, 'b': 2}\n", tmp_path)
    (folder / "config.yaml").write_text("max_iterations: 9\nevaluator: {timeout: 8}\n")
    given = [folder / "initial_program.py"] if command == "evaluate" else ["--dry-run"]
    result = invoke(command.split()[0], folder, *given)
    assert result.exit_code == 0
    line = "config.yaml: took over evaluator.timeout; not: max_iterations"
    assert result.stderr.count(line) == 1
    assert (
        result.output.count("combined_score is the mean of speed_score, b, as the evaluator") == 1
    )
    assert "max_iterations" not in result.stdout


NOISY = """
print("loaded")

def score(output):
    print("called")
    return {"combined_score": output}
"""


@pytest.mark.parametrize("command", ["evaluate", "run", "run --dry-run"])
def test_what_an_evaluator_prints_stays_out_of_the_result(invoke, tmp_path, command):
    folder = folder_with(NOISY, tmp_path)
    given = {
        "evaluate": [folder / "initial_program.py"],
        "run": ["--max-iterations", "1", "--out", tmp_path / "run"],
        "run --dry-run": ["--dry-run"],
    }
    result = invoke(command.split()[0], folder, *given[command], "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)
    assert {"loaded", "called"} <= set(result.stderr.splitlines())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_evaluation_at_once_and_leaves_nothing(program, tmp_path, number):
    options = ("--sandbox", "process")
    sign = tmp_path / "begun"
    sleeping = program(SLEEPING.replace("'begun'", repr(str(sign))))
    command = [COSTADA, "evaluate", "circle_packing", sleeping, *options]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with subprocess.Popen(
        command, stdout=PIPE, stderr=PIPE, text=True, env={**os.environ, "TMPDIR": str(scratch)}
    ) as process:
        while process.poll() is None and not sign.exists():
            sleep(0.02)
        began = monotonic()
        process.send_signal(number)
        assert process.wait(timeout=30) == 130
        assert monotonic() - began < 30
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert list(scratch.iterdir()) == []


def test_the_list_names_each_benchmark_with_direction_seed_reference_and_human(invoke):
    lines = invoke("list").stdout.splitlines()
    found = {line.split()[0]: line.split() for line in lines if line.strip()}
    assert found["name"] == ["name", "direction", "seed", "reference", "human"]
    assert found["circle_packing"][1:] == ["maximize", "0.959764217", "2.635", "2.634"]
    assert found["signal_processing"][3:] == ["-", "-"]
    assert set(problem_names()) <= set(found)


def test_the_list_as_json_holds_the_same_numbers(invoke):
    facts = json.loads(invoke("list", "--json").stdout)
    assert [each["name"] for each in facts] == list(problem_names())
    for each in facts:
        known = problem(each["name"])
        assert (each["seed"], each["reference"]) == (known.seed_objective, known.reference)
        assert (each["entry_point"], each["timeout"]) == (
            known.entry_point,
            known.limits.wall_seconds,
        )


@pytest.mark.parametrize("kind", ["a device", "a pipe", "a large file"])
def test_a_program_that_is_no_ordinary_file_is_refused(tmp_path, invoke, kind):
    path = tmp_path / "program.py"
    if kind == "a device":
        path = Path("/dev/zero")
    elif kind == "a pipe":
        os.mkfifo(path)
    else:
        with path.open("wb") as file:
            file.truncate(2**25)
    result = invoke("evaluate", "circle_packing", path)
    assert result.exit_code == 2
    assert str(path) in result.output.replace("\n", "")


FILES = {"problem.md", "problem.toml", "initial_program.py", "evaluator.py", "test_problem.py"}


@pytest.fixture
def folder(invoke, tmp_path):
    target = tmp_path / "deep" / "my problem"
    result = invoke("init", target)
    assert result.exit_code == 0, result.output
    return target


def test_it_writes_a_complete_folder_and_says_what_to_do_next(invoke, tmp_path):
    target = tmp_path / "my problem"
    lines = [line.strip() for line in invoke("init", target).stdout.splitlines()]
    assert {path.name for path in target.iterdir()} == FILES <= set(lines)
    place = shlex.quote(str(target))
    steps = (
        f"costada evaluate {place} {shlex.quote(str(target / 'initial_program.py'))}",
        f"costada run {place} --budget 0.2",
        f"pytest {place}",
    )
    assert set(steps) <= set(lines)


def test_its_own_tests_pass(folder):
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "."]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "4 passed" in ended.stdout


def test_its_initial_program_can_be_evaluated(invoke, folder):
    result = invoke("evaluate", folder, folder / "initial_program.py", "--json")
    verdict = json.loads(result.stdout)
    assert verdict["is_valid"]
    assert verdict["score"] == pytest.approx(49.16525305762881 / verdict["objective"])
    assert "The nearest are charges" in verdict["artifacts"]["feedback"]


def test_the_offline_model_gets_on_with_it(invoke, folder, tmp_path):
    out = tmp_path / "run"
    result = invoke("run", folder, "--budget", "0.3", "--out", out, "--json", "--quiet")
    found = json.loads(result.stdout)
    mine = problem(folder)
    seed = mine.evaluate(mine.initial_program).score
    assert found["best_score"] > seed
    assert found["best_score"] == mine.evaluate((out / "best_program.py").read_text()).score


@pytest.mark.parametrize("name", ["circle_packing", "signal_processing"])
def test_a_copied_benchmark_scores_its_seed_alike(invoke, tmp_path, name):
    target = tmp_path / "mine"
    written = invoke("init", target, "--from", name)
    assert written.exit_code == 0, written.output
    assert {path.name for path in target.iterdir()} == FILES - {"test_problem.py"}
    assert "  pytest " not in written.stdout
    copied, original = problem(target), problem(name)
    assert copied.name == "mine"
    seed = original.initial_program
    assert copied.evaluate(seed).score == original.evaluate(seed).score
    assert copied.evaluator_source == original.evaluator_source


def test_an_unknown_benchmark_is_refused_with_the_nearest(invoke, tmp_path):
    result = invoke("init", tmp_path / "mine", "--from", "circle_pack")
    assert result.exit_code == 2
    assert "did you mean 'circle_packing'?" in result.output
    assert not (tmp_path / "mine").exists()


def test_a_folder_that_holds_something_is_refused_by_name(invoke, tmp_path):
    for number in range(7):
        (tmp_path / f"note-{number}.txt").touch()
    result = invoke("init", tmp_path)
    assert result.exit_code == 2
    assert "holds note-0.txt, note-1.txt, note-2.txt, note-3.txt, note-4.txt and 2 more; expec" in (
        result.output
    )
    assert len(list(tmp_path.iterdir())) == 7


def test_a_file_is_refused(invoke, tmp_path):
    (tmp_path / "taken").touch()
    result = invoke("init", tmp_path / "taken")
    assert result.exit_code == 2
    assert "taken: is a file, expected a new or empty folder" in result.output


def test_an_empty_folder_is_used(invoke, tmp_path):
    assert invoke("init", tmp_path).exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == FILES
