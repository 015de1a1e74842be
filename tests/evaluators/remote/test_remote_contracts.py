"""Problems of every kind: an engine gives the verdict of this process, and the right one."""

import json
import os

import pytest
from engine_fixtures import CLUSTERS
from needed_programs import require
from squares import START, write_squares
from test_remote_evaluations import compared

from costada.evaluators.folders import load_folder
from costada.evaluators.problem import confine
from costada.evaluators.remote.backend import evaluated_by
from costada.values.candidate import Program
from costada.values.evaluation import WORKER

pytestmark = pytest.mark.process

SQUARE = "def square(number):\n    return number ** 2\n"
REMEMBERING = "def square(number):\n    return {2: 4, 3: 9}.get(number)\n"
CPP = "#include <iostream>\nint main() { int n; std::cin >> n; std::cout << n RULE 2; }\n"
PRINTED = """
CALLS = [{"stdin": "2\\n"}, {"stdin": "3\\n"}]


def score(results):
    if any(each.error for each in results):
        raise ValueError(results[0].error or results[1].error)
    right = [int(each.output["stdout"]) == wanted for each, wanted in zip(results, (4, 6))]
    return {"combined_score": sum(right) / 2}
"""
RETURNED = """
from costada import Evaluation, Holdout

CALLS = [{"number": 2}, {"number": 3}]


def drawn(seed):
    return [10 + seed % 90, 100 + seed % 900]


def score(results, numbers=(2, 3)):
    right = sum(each.output == number**2 for each, number in zip(results, numbers))
    return Evaluation(score=right / 2, objective=right / 2, is_valid=True)


"""
HELD_OUT = """HOLDOUT = Holdout(
    calls=lambda seed: [{"number": number} for number in drawn(seed)],
    score=lambda results, seed, published: score(results, drawn(seed)),
    margin=0.1,
)
"""
TWO_NUMBERS = """
CALLS = [{"number": 2}, {"number": 3}]


def score(results):
    found = [each.output for each in results]
    return {"right": sum(a == b for a, b in zip(found, (4, 9))), "size": sum(found)}
"""
BESIDE = """
import runpy


def evaluate(path):
    square = runpy.run_path(path)["square"]
    return {"combined_score": sum(square(n) == n * n for n in (2, 3)) / 2, "note": square.__name__}
"""
FILES = {
    "main.py": "from power import POWER\n\ndef square(number):\n    return number ** POWER\n",
    "power.py": "POWER = 3\n",
}

PROBLEMS = {
    "cpp": (
        'program = "square.cpp"\nbuild = "g++ {program} -o {binary}"\nrun = "{binary}"\n'
        "timeout = 60",
        PRINTED,
        {"square.cpp": CPP.replace("RULE", "+")},
    ),
    "shell": (
        'program = "square.sh"\nrun = "sh {program}"\ntimeout = 20',
        PRINTED,
        {"square.sh": "read n\necho $((n + 2))\n"},
    ),
    "objectives": (
        'entry_point = "square"\nobjectives = ["right:max", "size:min"]\n'
        "weights = { right = 1.0, size = 0.1 }",
        TWO_NUMBERS,
        {"initial_program.py": START},
    ),
    "noisy": (
        'entry_point = "square"\nrepeats = 3\naggregate = "mean"',
        RETURNED,
        {"initial_program.py": START},
    ),
    "holdout": ('entry_point = "square"', RETURNED + HELD_OUT, {"initial_program.py": SQUARE}),
    "files": (
        'program = ["main.py", "power.py"]\nentry_point = "main:square"',
        RETURNED,
        FILES,
    ),
    "beside": ("timeout = 20", BESIDE, {"initial_program.py": START}),
}
"""Settings, evaluator and files of the initial program of each problem."""

CASES = {
    "cpp right": ("cpp", CPP.replace("RULE", "*"), 1.0),
    "cpp half": ("cpp", CPP.replace("RULE", "+"), 0.5),
    "cpp unbuilt": ("cpp", "int main() { return nothing; }\n", "the build failed"),
    "cpp crash": ("cpp", "int main() { __builtin_trap(); }\n", "SIG"),
    "shell right": ("shell", "read n\necho $((n * 2))\n", 1.0),
    "shell silent": ("shell", "exit 3\n", "invalid literal for int()"),
    "objectives right": ("objectives", SQUARE, 2 - 1.3),
    "objectives lacking": (
        "objectives",
        "def square(number):\n    return float('nan')\n",
        "the evaluator returned no combined_score",
    ),
    "noisy right": ("noisy", SQUARE, 1.0),
    "noisy half": ("noisy", START, 0.5),
    "holdout right": ("holdout", SQUARE, 1.0),
    "holdout remembering": ("holdout", REMEMBERING, "scores 1 on the published inputs and 0 on"),
    "files right": ("files", {**FILES, "power.py": "POWER = 2\n"}, 1.0),
    "files cube": ("files", FILES, 0.0),
    "files unimportable": ("files", {**FILES, "power.py": "POWERS = 2\n"}, 0.0),
    "beside right": ("beside", SQUARE, 1.0),
    "beside raising": ("beside", "def square(number):\n    raise KeyError(1)\n", "KeyError"),
}
"""Problem, program, and the score or what the error says."""


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """The folder of each problem."""
    root = tmp_path_factory.mktemp("kinds")
    for name, (settings, evaluator, program) in PROBLEMS.items():
        (root / name).mkdir()
        files = {"problem.md": "Do it.\n", "problem.toml": f"{settings}\n", **program}
        for path, text in {**files, "evaluator.py": evaluator}.items():
            (root / name / path).write_text(text)
    return root


# Problems of every kind reach every engine by the same code, which pickles them.
@pytest.mark.parametrize("given", ["processes", *CLUSTERS], indirect=True, scope="module")
@pytest.mark.parametrize("case", CASES)
def test_a_problem_of_any_kind_is_judged_as_in_this_process(case, given, folders):
    kind, program, expected = CASES[case]
    if kind == "cpp":
        require("g++")
    found = load_folder(folders / kind)
    here, there = confine(found), confine(evaluated_by(found, given))
    judged = there.evaluate_program(Program.of(program), "key")
    assert WORKER in judged.artifacts
    assert compared(judged) == compared(here.evaluate_program(Program.of(program), "key"))
    if isinstance(expected, str):
        assert not judged.is_valid
        assert expected in judged.error
    else:
        assert judged.score == pytest.approx(expected)


def test_a_noisy_program_is_measured_again_where_it_beats_the_incumbent(given, folders):
    found = confine(evaluated_by(load_folder(folders / "noisy"), given))
    better = found.evaluate_program(Program.of(SQUARE), "key", 0.5)
    assert (better.measurements, better.confirmation) == ((1.0,) * 3, (1.0,) * 3)
    worse = found.evaluate_program(Program.of(START), "key", 0.5)
    assert (worse.measurements, worse.confirmation) == ((0.5,) * 3, ())


def test_a_worker_judges_on_the_examples_of_a_race_and_of_the_validation(given, tmp_path):
    rows = [json.dumps({"word": f"w{number:02}"}) for number in range(30)]
    files = {
        "problem.toml": 'program = "p.md"\nexamples = "a.jsonl"\nvalidation = "b.jsonl"\n',
        "problem.md": "Say all words.\n",
        "p.md": "w00\n",
        "a.jsonl": "\n".join(rows),
        "b.jsonl": "\n".join(rows[:3]),
        "evaluator.py": "def score_example(text, example):\n    return example['word'] in text\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    found = load_folder(tmp_path)
    here, there = confine(found), confine(evaluated_by(found, given))
    losing = there.evaluate_program(Program.of("nothing"), "key", 0.0, (1.0,) * 30)
    assert (len(losing.examples), losing.validation) == (found.batch, ())
    assert compared(losing) == compared(
        here.evaluate_program(Program.of("nothing"), "key", 0.0, (1.0,) * 30)
    )
    best = there.evaluate_program(Program.of("w00 w01"), "key", 0.0)
    assert (best.score, best.validation) == (2 / 30, (1.0, 1.0, 0.0))
    assert best.examples == here.evaluate_program(Program.of("w00 w01"), "key").examples


def test_held_out_inputs_depend_on_the_key_of_the_run(given, folders):
    found = load_folder(folders / "holdout")
    here, there = confine(found), confine(evaluated_by(found, given))
    # Right for each published input, and for held-out inputs below 500.
    program = Program.of("def square(number):\n    return number**2 if number < 500 else None\n")
    keys = [f"key {number}" for number in range(12)]
    verdicts = [there.evaluate_program(program, key).is_valid for key in keys]
    assert verdicts == [here.evaluate_program(program, key).is_valid for key in keys]
    assert {*verdicts} == {True, False}


@pytest.mark.filterwarnings("ignore:More than 10MB of messages")
def test_a_large_folder_is_sent_without_a_warning_of_the_engine(given, tmp_path):
    folder = write_squares(tmp_path / "squares", 'entry_point = "square"\ntimeout = 20\n')
    (folder / "data").write_bytes(os.urandom(12 * 2**20))
    found = confine(evaluated_by(load_folder(folder), given))
    assert found.evaluate_program(Program.of(SQUARE), "key").score == 1.0
