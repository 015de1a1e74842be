"""Which commands count as the candidate's: they run its file, a copy, or what was made of it."""

import pytest
from own_evaluator import loaded

from costada.evaluators.sandbox.inside.build_outputs import outputs_in
from costada.evaluators.sandbox.inside.own_files import OwnFiles
from costada.evaluators.sandbox.inside.started_commands import Place, StartedCommands

EVALUATOR = """
def start():
    return Popen(
        ["gcc tool.c -o tool", "./made/a.out", "curl -s", "import json; print(json)"],
        "import theirs; theirs.run()",
    )
"""
SCRIPT = "#!/bin/sh\n# builds\ngcc tool.c -o tool\n./tool data.txt\n"
FILES = {
    "folder/check.py": "",
    "folder/data.txt": "",
    "folder/tool.c": "",
    "folder/own.sh": SCRIPT,
    "folder/inline.sh": "#!/bin/sh\npython -c 'print(1)' | cat\n",
    "folder/theirs.sh": "#!/bin/sh\nset -e\ncd made && ./a.out < ../data.txt\n",
    "folder/Makefile": "tool: tool.c\n\tcc tool.c -o $@\nall: tool\n",
    "folder/Theirs.mk": "solution: solution.o\n\tcc -g $^ -o $@\n",
    "folder/made/a.out": "",
    "folder/solution.cpp": "",
    "folder/theirs.py": "",
    "program/candidate.py": "",
}
MADE = ("folder/made", "folder/solution.cpp", "folder/theirs.py")


@pytest.fixture
def runs(tmp_path):
    """Whether a command runs the candidate that an evaluator starts."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    folder = tmp_path / "folder"
    files = [str(tmp_path / name) for name in FILES if not name.startswith((*MADE, "program"))]
    own = OwnFiles(str(folder), str(folder / "check.py"), files)
    made = [str(tmp_path / name) for name in MADE]
    codes = ["x" * 50, "short(1)\n"]
    program = f"{tmp_path}/program"
    commands = StartedCommands(f"{tmp_path}/", own, program, codes, lambda: iter(made))

    def judge(_, reached):
        words, place, environment = asked
        return commands.run_candidate(words, Place(str(folder / place), environment, reached))

    asked = []
    with loaded(tmp_path, EVALUATOR, judge) as module:

        def run(words, place="", environment=()):
            asked[:] = (
                [word.replace("{program}", program) for word in words],
                place,
                {**dict(environment)},
            )
            return module.start()

        yield run


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["python", "check.py", "made/a.out"], False),
        (["timeout", "5", "python", "check.py", "made/a.out"], False),
        (["gcc", "tool.c", "-o", "tool"], False),
        (["curl", "https://example.org"], False),
        (["python", "-m", "check"], False),
        (["python", "-m", "check", "made/a.out"], False),
        (["python", "-W", "error", "-X", "dev", "check.py", "-"], False),
        (["python", "-c", "import json; print(json)"], False),
        (["python", "-Ic", "import json; print(json)"], False),
        (["sh", "-c", "python -c 'import json; print(json)'"], False),
        (["sh", "inline.sh"], False),
        (["bash", "-lc", "gcc tool.c -o tool"], False),
        (["sh", "-c", ". own.sh"], False),
        (["sh", "-c", "gcc tool.c -o tool && python check.py < made/a.out"], False),
        (["sh", "own.sh"], False),
        (["./own.sh"], False),
        (["make"], False),
        (["make", "-f", "Makefile", "all"], False),
        (["python"], True),
        (["python", "-c", "x" * 60], True),
        (["python", "-c", "short(1), print(1)"], True),
        (["python", "-c", "def f(): return 1\nprint(f())"], True),
        (["python", "-cprint(1)"], True),
        (["python", "-c", "import theirs; theirs.run()"], True),
        (["python", "-W", "error", "-m", "theirs"], True),
        (["perl", "-ne", "print"], True),
        (["node", "--eval=1"], True),
        (["bash", "-lc", "python theirs.py"], True),
        (["bash", "-ec", "./made/a.out"], True),
        (["sh", "-c", "cat data.txt"], True),
        (["sh", "-c", "python -c 'print(2)'"], True),
        (["sh", "-c", "gcc tool.c -o tool; cat data.txt"], True),
        (["python", "-m", "made"], True),
        (["python", "-m", "theirs"], True),
        (["sh", "-c", ". ./theirs.py"], True),
        (["bash", "-c", "source ./theirs.py"], True),
        (["python", "-m", "timeit", "-s", "import {program}/candidate.py"], True),
        (["./made/a.out"], True),
        (["timeout", "-k", "1", "5", "./made/a.out"], True),
        (["gcc", "solution.cpp"], True),
        (["sh", "-c", "python check.py; cd made; ./a.out"], True),
        (["bash", "-c", "python check.py $X | tee log; exec $PROGRAM"], True),
        (["sh", "-c", "`which python` check.py"], True),
        (["sh", "-c", "python 'open"], True),
        (["sh", "theirs.sh"], True),
        (["./own.sh", "{program}/candidate.py"], True),
        (["env", "A=1", "sh", "own.sh", "made/a.out"], True),
        (["make", "-f", "Theirs.mk"], True),
        (["make", "solution"], True),
        (["make", "PROGRAM={program}/candidate.py"], True),
    ],
)
def test_a_command_counts_if_its_words_or_those_of_its_script_lead_to_the_candidate(
    runs, words, expected
):
    assert runs(words) is expected


def test_a_variable_that_leads_to_the_candidate_counts(runs, tmp_path):
    assert runs(["curl", "x"], environment={"PYTHONPATH": f"{tmp_path}/program"})


def test_every_command_counts_in_a_folder_that_was_made(runs):
    assert runs(["curl", "x"], "made")


def test_a_file_of_the_evaluator_that_was_written_to_is_none_any_more(runs, tmp_path):
    assert not runs(["python", "check.py"])
    (tmp_path / "folder" / "check.py").write_text("print(1)")
    assert runs(["python", "check.py"])


def test_what_a_makefile_builds_is_read_from_its_rules():
    assert outputs_in(FILES["folder/Makefile"]) == ["tool"]
    assert outputs_in("g++ a.cpp -O2 -o a.out && ./a.out\n") == ["a.out"]
