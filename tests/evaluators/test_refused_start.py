"""What a user reads when the evaluator of a folder does not accept the initial program."""

import re

import pytest

from costada.evaluators.folders import load_folder
from costada.evaluators.problem import check_problem, confine
from costada.evaluators.sandbox.inside.error_reports import PROCESS_REFUSED
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import UNCONFINED, Layer

pytestmark = pytest.mark.process

SWALLOWING = """
import os
import subprocess
import sys
def evaluate(program_path):
    print("starting")
    try:
        START
    except OSError as error:
        for number in range(30):
            print("retry", number)
        return {"validity": 0.0, "combined_score": 0.0}
    return {"validity": 1.0, "combined_score": 0.5}
"""
COMMAND = 'subprocess.run([sys.executable, "-c", ""], check=True)'
FORK = "(os.fork() or os._exit(0)) and os.wait()"


def folder_with(tmp_path, evaluator, settings="", program="x = 1\n"):
    texts = {"problem.md": "Do it.", "initial_program.py": program, "problem.toml": settings}
    for name, text in {**texts, "evaluator.py": evaluator}.items():
        (tmp_path / name).write_text(text)
    return load_folder(tmp_path)


@pytest.mark.skipif(
    chosen_layer(Layer.AUTO) in UNCONFINED, reason="processes are refused by a confining layer"
)
@pytest.mark.parametrize(
    ("start", "name"), [(COMMAND, r" \(python[0-9.]*\)"), (FORK, "")], ids=["command", "fork"]
)
def test_a_refused_process_is_named_with_the_setting_that_allows_it(tmp_path, start, name):
    evaluator = SWALLOWING.replace("START", start)
    with pytest.raises(ValueError, match=r"validity 0") as refused:
        check_problem(folder_with(tmp_path, evaluator, "processes = 0"))
    [line, *log] = str(refused.value).splitlines()
    pattern = rf".* {PROCESS_REFUSED}{name}: .* write processes = 16 in problem\.toml"
    assert re.fullmatch(pattern, line)
    assert log[-1] == "retry 29"
    assert str(refused.value).count(PROCESS_REFUSED) == 1
    allowed = folder_with(tmp_path, evaluator)
    assert check_problem(allowed).score == 0.5


def test_advice_stands_below_what_an_evaluator_says_in_several_lines(tmp_path):
    said = "{'validity': 0.0, 'combined_score': 0.0, 'error': 'tests failed\\nlast line of a log'}"
    evaluator = f"def evaluate(program_path):\n    return {said}\n"
    with pytest.raises(ValueError, match="tests failed") as refused:
        check_problem(folder_with(tmp_path, evaluator))
    assert "\nlast line of a log\nExpected a valid one. If the start is" in str(refused.value)


POOL = """
import multiprocessing
def evaluate(program_path):
    with multiprocessing.Pool(2) as pool:
        return {"combined_score": sum(pool.map(abs, [-1, -2]))}
"""
CAUGHT_POOL = """
from concurrent.futures import ProcessPoolExecutor
def evaluate(program_path):
    try:
        with ProcessPoolExecutor(2) as pool:
            return {"combined_score": sum(pool.map(abs, [-1, -2]))}
    except OSError as error:
        return {"combined_score": 0.0, "validity": 0.0, "error": str(error)}
"""


@pytest.mark.skipif(
    chosen_layer(Layer.AUTO) in UNCONFINED, reason="processes are refused by a confining layer"
)
@pytest.mark.parametrize("evaluator", [POOL, CAUGHT_POOL], ids=["raised", "caught"])
def test_a_refused_pool_is_named_with_the_setting_that_allows_it(tmp_path, evaluator):
    with pytest.raises(ValueError, match=r"not permitted|Permission denied") as refused:
        check_problem(folder_with(tmp_path, evaluator, "processes = 0"))
    assert PROCESS_REFUSED in str(refused.value)
    assert "write processes = 16 in problem.toml" in str(refused.value)
    allowed = folder_with(tmp_path, evaluator)
    assert check_problem(allowed).score == 3.0


def test_a_process_is_not_said_to_be_refused_where_there_are_no_limits(tmp_path):
    evaluator = SWALLOWING.replace("START", COMMAND)
    refusing = folder_with(tmp_path, evaluator, "processes = 0")
    problem = confine(refusing, sandbox=Layer.NONE)
    evaluation = check_problem(problem)
    assert evaluation.score == 0.5
    assert PROCESS_REFUSED not in evaluation.artifacts["log"]


def test_a_rejected_start_is_refused_with_the_end_of_its_log(tmp_path):
    evaluator = (
        "def evaluate(path):\n"
        "    for number in range(100): print('line', number, '.' * 400)\n"
        "    return {'combined_score': 0, 'validity': 0}\n"
    )
    with pytest.raises(ValueError, match="rejects the initial program") as refused:
        check_problem(folder_with(tmp_path, evaluator))
    _, _, log = str(refused.value).partition("\nEnd of its log:\n")
    lines = log.splitlines()
    assert [line.split(" .")[0] for line in lines] == [f"line {n}" for n in range(85, 100)]
    assert max(map(len, lines)) == 300


def test_a_failing_evaluator_is_refused_with_the_end_of_its_log(tmp_path):
    evaluator = "def evaluate(path):\n    print('no disk')\n    raise RuntimeError('gone')\n"
    with pytest.raises(ValueError, match=r"evaluator\.py failed: RuntimeError: gone") as refused:
        check_problem(folder_with(tmp_path, evaluator))
    assert str(refused.value).endswith("\nEnd of its log:\nno disk")


def test_a_start_that_prints_nothing_is_refused_without_a_log(tmp_path):
    with pytest.raises(ValueError, match="validity 0") as refused:
        check_problem(
            folder_with(
                tmp_path, "def evaluate(path):\n    return {'validity': 0, 'combined_score': 1}"
            )
        )
    assert "End of its log" not in str(refused.value)


CONFINED = pytest.mark.skipif(
    chosen_layer(Layer.AUTO) in UNCONFINED, reason="a confining layer refuses it"
)
RAISING = """# see https://example.org
import multiprocessing, os, socket, subprocess, sys
def evaluate(program_path):
    BODY
"""
WRITING = "if __name__ == '__main__': open('said', 'w').write('x')\n"


@pytest.mark.parametrize(
    ("body", "last"),
    [
        (
            "open('/nowhere/of/data.csv')",
            "/nowhere/of/data.csv is outside of the problem's folder: copy it into",
        ),
        ("open(os.path.expanduser('~/data.csv'))", "HOME is the scratch folder in the sandbox"),
        ("open('absent.csv')", "open('absent.csv')"),
        (
            "os.chdir('data')\n    open('data/cases.txt')",
            "data/cases.txt is in the problem's folder, but the working ",
        ),
        pytest.param(
            "open('/sys/kernel/notes')", "/sys/kernel/notes belongs to the system", marks=CONFINED
        ),
        pytest.param(
            "open('/tmp/out.txt', 'w')", "Only the copy of the problem's folder ", marks=CONFINED
        ),
        pytest.param("os.nice(-1)", "os.nice(-1)", marks=CONFINED),  # see https://example.org
        pytest.param(
            "multiprocessing.Manager()", "The sandbox has no sockets, so no Manager", marks=CONFINED
        ),
        ("open('cases')", "open('cases')"),
        ("os.environ.get('SETTING')\n    {}['RMSE']", "{}['RMSE']"),
        (
            "raise ValueError(os.environ.get('MODEL_KEY') or 'MODEL_KEY is not set')",
            "The sandbox does not pass on environment variables such as MODEL_KEY",
        ),
        pytest.param("socket.socket()", "The sandbox has no network, so ", marks=CONFINED),
        ("raise OSError('Temporary failure in name resolution')", "The sandbox has no network"),
        ("os.environ['API_KEY']", "The sandbox does not pass on environment variables such as API"),
        ("os.environ['USER']", "The sandbox does not pass on environment variables such as USER: "),
        ("subprocess.run(['no-program'])", "If no-program is a program, it is missing: "),
        ("subprocess.run(['source', 'x.sh'])", "source is a command of a shell such as bash, not "),
        pytest.param(
            "subprocess.run([sys.executable, program_path], check=True)",
            "What an evaluator starts that runs the candidate makes and removes files only in the ",
            marks=CONFINED,
        ),
        ("{}['API']", "{}['API']"),
    ],
)
def test_an_evaluator_that_fails_for_where_it_runs_gets_the_hint_that_helps(tmp_path, body, last):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cases.txt").write_text("1")
    evaluator = RAISING.replace("BODY", body)
    settings = 'files = ["data/cases.txt"]'
    with pytest.raises(ValueError, match=r"evaluator\.py failed: ") as refused:
        check_problem(folder_with(tmp_path, evaluator, settings, WRITING))
    lines = str(refused.value).partition("\nEnd of its log")[0].splitlines()
    hints = [line for line in lines if "sandbox" in line or "An evaluator sees" in line]
    assert lines[-1].strip().startswith(last)
    assert len(hints) <= 1


BUILDING = """
import os, shutil, subprocess
def evaluate(program_path):
    try:
        COPY
        os.chmod("built", 0o755)
        START
    except OSError as error:
        return {"validity": 0.0, "combined_score": 0.0, "error": str(error)}
    return {"combined_score": 0.5}
"""


@pytest.mark.parametrize("layer", [Layer.LANDLOCK, Layer.BUBBLEWRAP, Layer.PROCESS])
@pytest.mark.parametrize(
    "start",
    [
        'subprocess.run(["./built"], check=True)',
        'subprocess.Popen(["./built"]).wait()',
        'found = subprocess.run("./built", shell=True, capture_output=True, text=True)\n'
        "        if found.returncode: raise OSError(found.stderr)",
    ],
    ids=["run", "popen", "shell"],
)
@pytest.mark.parametrize("is_caught", [True, False])
def test_what_an_evaluator_builds_runs_or_the_layers_are_named_where_it_does(
    tmp_path, layer, start, is_caught
):
    try:
        chosen_layer(layer)
    except ValueError as error:
        pytest.skip(str(error))
    text = BUILDING.replace("START", start).replace("COPY", 'shutil.copy("/bin/true", "built")')
    text = text if is_caught else text.replace("OSError as", "ZeroDivisionError as")
    problem = confine(folder_with(tmp_path, text), sandbox=layer)
    try:
        evaluation = check_problem(problem)
    except ValueError as error:
        refusal = str(error)
    else:
        assert evaluation.score == 0.5
        return
    said = rf"(?s)chmod has no effect under {layer}.*0o755.* --sandbox process"
    assert re.search(said, refusal)
    made = (
        'made = os.open("built", os.O_CREAT | os.O_WRONLY, 0o755)\n'
        '        os.write(made, open("/bin/true", "rb").read())\n        os.close(made)'
    )
    text = BUILDING.replace("START", start).replace("COPY", made)
    problem = confine(folder_with(tmp_path, text), sandbox=layer)
    assert check_problem(problem).score == 0.5


@CONFINED
def test_the_setting_of_a_refused_process_is_said_first_and_nothing_of_files(tmp_path):
    evaluator = RAISING.replace("BODY", COMMAND.replace("sys.executable", "'python3'"))
    with pytest.raises(ValueError, match=r"evaluator\.py failed: ") as refused:
        check_problem(folder_with(tmp_path, evaluator, "processes = 0"))
    text = str(refused.value)
    assert f"evaluator.py failed: {PROCESS_REFUSED} (python3): " in text.splitlines()[0]
    assert "An evaluator sees" not in text


def test_a_start_with_nothing_but_a_failure_is_told_to_name_the_score(tmp_path):
    evaluator = "def evaluate(path): return {'error': 1000.0}\n"
    with pytest.raises(ValueError, match="the evaluator reports error 1000, and no") as refused:
        check_problem(folder_with(tmp_path, evaluator))
    assert "--allow-invalid-start" not in str(refused.value)
    assert 'metric, with direction = "minimize" and reference' in str(refused.value)
    minimized = 'metric = "error"\ndirection = "minimize"\nreference = 500.0\n'
    assert check_problem(folder_with(tmp_path, evaluator, minimized)).score == 0.5


@pytest.mark.parametrize(
    ("answer", "is_told"),
    [
        ({"num_failed": 3.0}, True),
        ({"num_errors": 3.0, "error": "does not compile"}, False),
        ({"combined_score": 0.0, "error": "does not compile"}, False),
    ],
)
@pytest.mark.parametrize("contract", ["evaluate(path)", "score(output)"])
def test_a_metric_is_to_be_named_only_where_no_error_is_reported(
    tmp_path, contract, answer, is_told
):
    evaluator = f"def {contract}: return {answer!r}\n"
    settings = 'entry_point = "one"\n' if contract == "score(output)" else ""
    with pytest.raises(ValueError, match="rejects the initial program") as refused:
        check_problem(folder_with(tmp_path, evaluator, settings, "def one():\n    return 1.0\n"))
    assert ("name it in problem.toml: metric" in str(refused.value)) is is_told
    assert ("--allow-invalid-start" in str(refused.value)) is not is_told


@pytest.mark.parametrize(
    ("error", "is_setup"),
    [
        ("No module named 'absent'", True),
        ("gcc: command not found", True),
        ("<urlopen error [Errno -3] Temporary failure in name resolution>", True),
        ("expected 3 circles", False),
        ("KeyError: 'radius'", False),
    ],
)
def test_an_invalid_start_is_offered_only_where_the_setup_works(tmp_path, error, is_setup):
    answer = {"combined_score": 0.0, "error": error}
    with pytest.raises(ValueError, match="rejects the initial program") as refused:
        check_problem(folder_with(tmp_path, f"def evaluate(path): return {answer!r}\n"))
    assert ("--allow-invalid-start" not in str(refused.value)) is is_setup


CHOOSE = "A number whose name tells a failure is never maximised"


@pytest.mark.parametrize(
    ("returned", "is_told"),
    [
        ('{"error": 7.0}', True),
        ('{"combined_score": 0.0, "error": "no output, and no combined_score"}', False),
    ],
    ids=["failures alone", "a failure in the same words"],
)
def test_how_to_choose_a_score_is_told_where_only_failures_are_reported(
    tmp_path, returned, is_told
):
    problem = folder_with(tmp_path, f"def evaluate(program_path):\n    return {returned}\n")
    with pytest.raises(ValueError, match="and no combined_score") as refused:
        check_problem(problem)
    assert (CHOOSE in str(refused.value)) is is_told
