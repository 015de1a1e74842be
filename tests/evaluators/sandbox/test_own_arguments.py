"""Which of its files the code of an evaluator gives to a command."""

import pytest
from own_evaluator import loaded

from costada.evaluators.sandbox.inside.own_arguments import OwnArguments

EVALUATOR = """
import json, os, pathlib
from concurrent.futures import ThreadPoolExecutor
HERE = os.path.dirname(os.path.abspath(__file__))
GIVEN = os.path.join(HERE, "data", "given.txt")
ANSWERS = pathlib.Path(HERE) / "data" / "answers.txt"
CASES = os.path.join(HERE, "cases")
def run(*words, data=""):
    return Popen("python", *words, data)
class Runner:
    def __init__(self, data):
        self.data = data
    def run(self, path):
        return run(path, self.data)
def literal(path):
    return Popen("python", path, "data/given.txt")
def constant(path):
    kept = ANSWERS.read_text()
    return run(path, GIVEN), kept
def option(path):
    return run(path, data=GIVEN)
def held(path):
    return Runner(GIVEN).run(path)
def listed(path):
    words = ["-v"]
    words.append(GIVEN)
    return Popen(*words)
def numbered(path, number):
    return Popen(path, f"{CASES}/case{number}.in")
def found(path):
    return [Popen(path, os.path.join(CASES, name)) for name in sorted(os.listdir(CASES))][0]
def threads(path):
    with ThreadPoolExecutor(1) as pool:
        return list(pool.map(lambda given: run(path, given), [GIVEN]))[0]
def submitted(path):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, path, GIVEN).result()
def work(path, given):
    return Popen(path, given)
def manifest(path):
    with open(os.path.join(HERE, "list.json")) as file: cases = json.load(file)
    return [Popen(path, each["file"]) for each in cases][0]
def printed(path):
    kept = ANSWERS.read_text()
    first = run(path, GIVEN)
    return run(path, str(first)), kept
def checked(path):
    return run("check.py", ANSWERS), run(path, "x")
"""
FILES = (
    "data",
    "data/given.txt",
    "data/answers.txt",
    "cases",
    "cases/case7.in",
    "cases/case7.out",
    "list.json",
)
LIST = '[{"file": "cases/case7.out"}]'


@pytest.fixture
def named(tmp_path):
    """Which of the files a function of the evaluator names to the command that it starts."""
    for name in FILES:
        path = tmp_path / name
        path.write_text(LIST if name == "list.json" else "1") if "." in name else path.mkdir()

    def judge(words, reached):
        own = OwnArguments(reached, str(tmp_path), [str(tmp_path / name) for name in FILES])
        return {name for name in FILES if own.name(str(tmp_path / name))}

    with loaded(tmp_path, EVALUATOR, judge, *FILES) as module:
        yield lambda function, *given: getattr(module, function)("/program.py", *given)


@pytest.mark.parametrize(
    "function", ["literal", "option", "held", "listed", "threads", "submitted"]
)
def test_a_file_is_named_by_the_code_of_the_call_that_starts_a_command(named, function):
    assert named(function) == {"data/given.txt"}


def test_what_the_code_around_a_call_reads_is_not_given_to_the_command(named):
    assert named("constant")[0] == {"data/given.txt"}
    assert named("printed")[0] == set()
    assert named("checked") == ({"data/answers.txt"}, set())


def test_names_that_are_filled_in_listed_or_read_from_a_list_of_the_evaluator_count(named):
    assert named("numbered", 7) == {"cases/case7.in"}
    assert named("found") == {"cases/case7.in", "cases/case7.out"}
    assert named("manifest") == {"list.json", "cases/case7.out"}
