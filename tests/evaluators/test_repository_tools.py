"""What tools of a model show of a repository, and how they run its tests."""

import pytest
from made_repositories import make_repository, problem_of

from costada.evaluators.repository_tools import RepositoryTools
from costada.values.candidate import Program

pytestmark = pytest.mark.process

SOLVER = '''import math


class Solver:
    """Solves."""

    @property
    def answer(self):
        def inner():
            return 1

        return inner()


def answer():
    return 0.5
'''
FILES = {
    "bench.py": "from solver import answer\n\nprint(answer())\n",
    "src/solver.py": SOLVER,
    "data/numbers.txt": "1 2 3\n4 5 6\n",
    "tests/test_solver.py": "import solver\nassert solver.answer() < 1, 'too large'\n",
    "tests/test_other.py": "print('other')\n",
    "ast.py": "raise SystemExit('of the repository')\n",
}


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tools")
    repository = make_repository(folder / "repository", FILES)
    (repository / "data" / "outside").symlink_to("/etc/passwd")
    test = 'test = "python tests/test_solver.py"\n'
    return problem_of(repository, folder / "problem", settings=test)


@pytest.fixture(scope="module")
def looking(problem):
    tools = RepositoryTools(problem.evaluate)
    return lambda tool, *words, program=problem.start: tools.look(program, tool, words)


def test_a_file_is_read_with_the_numbers_of_its_lines(looking):
    assert looking("read", "data/numbers.txt") == (
        "data/numbers.txt, lines 1-2 of 2:\n1: 1 2 3\n2: 4 5 6"
    )
    assert looking("read", "data/numbers.txt", "2-9") == (
        "data/numbers.txt, lines 2-2 of 2:\n2: 4 5 6"
    )


def test_the_files_of_a_program_are_in_place(looking):
    changed = Program.of({"src/solver.py": "ANSWER = 7\n"})
    assert looking("grep", "ANSWER|answer", "src/*", program=changed) == (
        "src/solver.py:1: ANSWER = 7"
    )


def test_an_outline_names_functions_and_classes_with_their_lines(looking):
    assert looking("outline", "src/solver.py").splitlines() == [
        "4-12: class Solver",
        "7-12: def Solver.answer",
        "9-10: def Solver.answer.inner",
        "15-16: def answer",
    ]


def test_what_matches_is_listed_by_path_and_line(looking):
    assert looking("grep", r"^\d 5", "*.txt") == "data/numbers.txt:2: 4 5 6"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("read", "/etc/passwd"), "There is no file '/etc/passwd' in the repository."),
        (("read", "../home/x"), "There is no file '../home/x' in the repository."),
        (("read", "data/outside"), "There is no file 'data/outside' in the repository."),
        (("read", "data"), "There is no file 'data' in the repository."),
        (("read", "bench.py", "9-12"), "bench.py has the lines 1-3, none of 9-12"),
        (("read", "bench.py", "end"), "lines is 'end'; expected a range such as 10-25"),
        (("grep", "("), "pattern is '('; expected a regular expression"),
        (("grep", "nowhere", "*.md"), "No line of files that match '*.md' holds 'nowhere'."),
        (("outline", "data/numbers.txt"), "data/numbers.txt is not Python"),
    ],
)
def test_a_wrong_argument_is_answered_in_words(looking, words, answer):
    assert looking(*words).startswith(answer)


def test_tests_run_on_the_files_of_a_program(problem):
    tools = RepositoryTools(problem.evaluate)
    assert tools.run_tests(problem.start) == "test: exit status 0\n"
    failing = tools.run_tests(Program.of({"src/solver.py": "def answer():\n    return 2\n"}))
    assert failing.startswith("test: exit status 1\nTraceback")
    assert failing.endswith("AssertionError: too large")


def test_named_tests_take_the_place_of_the_files_in_the_command(problem):
    found = RepositoryTools(problem.evaluate).run_tests(problem.start, ["tests/test_other.py"])
    assert found == "test: exit status 0\nother"
