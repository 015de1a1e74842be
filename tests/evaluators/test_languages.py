"""Problems whose candidates are programs in other languages, or texts that nothing runs."""

from pathlib import Path

import pytest
from needed_programs import needs

from costada.evaluators.problem import Problem, check_problem
from costada.evaluators.registry import problem
from costada.values.candidate import Program
from costada.values.evaluation import Evaluation

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "examples" / "problems"
needs_gcc = needs("g++")


def length(output: object) -> Evaluation:
    score = float(len(output["stdout"]) if isinstance(output, dict) and "stdout" in output else 1)
    return Evaluation(score=score, objective=score, is_valid=True)


def share(text: object) -> Evaluation:
    if "bad" in text:
        raise ValueError("a bad word")
    score = len(text) / 100
    return Evaluation(score=score, objective=score, is_valid=True)


def make(**fields: object) -> Problem:
    given = {"name": "p", "task": "Do it.", "initial_program": "print(1)", "score": length}
    return Problem(**given | {"run": "python3 {program}"} | fields)


def judged(subject: Problem, program: str | dict[str, str]) -> Evaluation:
    return subject.evaluate_program(Program.of(program))


@needs_gcc
def test_the_example_in_cpp_scores_what_its_trips_deserve():
    subject = problem(EXAMPLES / "cpp")
    assert subject.form.language.name == "C++"
    start = check_problem(subject)
    assert 0.7 < start.score < 0.8
    better = (EXAMPLES / "cpp" / "tour.cpp").read_text()
    worse = better.replace("distance < least", "(nearest < 0 || distance > least)")
    assert judged(subject, worse).score < start.score / 2
    broken = judged(subject, better.replace(">> count", ">> amount", 1))
    assert broken.error.startswith("the build failed: exit status 1\ntour.cpp: In function")
    assert not broken.is_valid


@needs("rustc")
def test_the_example_in_rust_counts_its_bins():
    subject = problem(EXAMPLES / "rust")
    start = check_problem(subject)
    source = (EXAMPLES / "rust" / "packing.rs").read_text()
    assert 0.7 < start.score < 0.8
    full = judged(subject, source.replace("filled + size > capacity", "false"))
    assert full.error.startswith("a bin holds ")
    broken = judged(subject, source.replace("fn main()", "fn man()"))
    assert broken.error.startswith("the build failed: exit status 1\nerror[E0601]: `main`")


def test_a_text_is_judged_as_it_is():
    subject = make(initial_program="a" * 40, language="SQL", run=None, score=share)
    assert check_problem(subject).score == 0.4
    assert judged(subject, "bad").error == "a bad word"
    assert judged(subject, "x" * 2**21).error.startswith("the source has 2097152 bytes; expected")
    files = make(initial_program={"a.md": "1", "b.json": "{}"}, run=None, score=share)
    assert judged(files, {"a.md": "", "c.md": "", "d.md": ""}).score == 0.03


def test_one_call_is_given_to_score_alone_and_several_as_a_list():
    single = make(initial_program="print(input())", arguments={"stdin": "abc"})
    assert judged(single, "print(input())").score == 4
    assert judged(single, "print(input())").metrics["eval_time"] > 0
    several = make(
        calls=[{"arguments": ["x"]}, {}], score=lambda results: length(results[0].output)
    )
    assert judged(several, "import sys\nprint(sys.argv[1])").score == 2


def test_a_program_that_fails_to_build_is_its_own_failure_whatever_the_calls():
    subject = make(
        build="grep -q print {program}",
        calls=[{}, {}],
        score=lambda results: length(results[1].output),
    )
    assert check_problem(subject).score == 2
    assert judged(subject, "1").error == "the build failed: exit status 1"


def test_the_file_of_a_program_has_the_ending_of_its_language():
    shown = make(initial_program="x", language="Rust", run="ls")
    assert judged(shown, "x").score == len("candidate.rs\n")
    assert judged(make(initial_program="x", file_name="Main.java", run="ls"), "x").score == 10


def test_an_entry_point_of_several_files_names_a_module_of_theirs():
    files = {"pkg/a.py": "def f(): return 7", "pkg/b.txt": ""}
    subject = make(initial_program=files, run=None, entry_point="pkg.a:f", score=length)
    assert check_problem(subject).score == 1
