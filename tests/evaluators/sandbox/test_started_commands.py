"""Which commands count as the candidate's: they run its file, a copy, or what was made of it."""

import pytest

from costada.evaluators.sandbox.inside.started_commands import StartedCommands

SCRIPT = "#!/bin/sh\n# builds\ngcc tool.c -o tool\n"
FILES = {
    "folder/check.py": "",
    "folder/data.txt": "",
    "folder/tool.c": "",
    "folder/own.sh": SCRIPT,
    "folder/own_run.sh": f"{SCRIPT}./tool data.txt\n",
    "folder/theirs.sh": "#!/bin/sh\nset -e\ncd made && ./a.out < ../data.txt\n",
    "folder/Makefile": "tool: tool.c\n\tcc tool.c -o $@\nall: tool\n",
    "folder/Other.mk": "all:\n\t$(MAKE) -C elsewhere\n",
    "folder/Theirs.mk": "solution: solution.o\n\tcc -g $^ -o $@\n",
    "folder/Wild.mk": "tool: $(wildcard *.cpp)\n\tc++ $^ -o $@\n",
    "folder/alone.py": "#!/usr/bin/python3 -I\n",
    "folder/no_site.py": "#!/usr/bin/env -S python3 -u -S\n",
    "folder/plain.py": "#!/usr/bin/env -S python3 -u\n",
    "folder/scripted.py": "#!/usr/bin/env -S lua -v\n",
    "folder/checked.pl": "#!/usr/bin/perl -T\n",
    "folder/typed.ts": "#!/usr/bin/env -S node --import tsx\n",
    "folder/alone.sh": "#!/bin/sh -e\npython3 -I check.py\n",
    "folder/Alone.mk": "all:\n\tpython3 -u -I check.py\n",
    "folder/Named.mk": "PYTHON = python3\nall:\n\t$(PYTHON) -W error -E check.py\n",
    "folder/Kept.mk": "export PYTHONPATH := src:$(PYTHONPATH)\nall:\n\tpython3 check.py\n",
    "folder/Left.mk": "export PYTHONPATH := src\nall:\n\tpython3 check.py $(PYTHONPATH)\n",
    "folder/Script.mk": "all:\n\t./alone.py\n",
    "folder/Shell.mk": "all:\n\tsh alone.sh\n",
    "folder/Python.mk": "all:\n\tpython3 -u check.py -I x && gcc -Iinclude tool.c\n\t./plain.py\n",
    "folder/use.c": '#include "glue.h"\n',
    "folder/include/glue.h": '#include "../solution.cpp"\n',
    "folder/Use.mk": "use: use.o\n\tgcc $^ -Iinclude -o $@\n",
    "folder/made/a.out": "",
    "folder/pack/own.py": "",
    "folder/pack/__init__.py": "",
    "folder/solution.cpp": "",
    "folder/theirs.py": "",
    "program/candidate.py": "",
}
MADE = ("folder/made", "folder/pack/__init__.py", "folder/solution.cpp", "folder/theirs.py")


@pytest.fixture
def commands(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    own = [name for name in FILES if not name.startswith((*MADE, "program"))]
    given = {str(tmp_path / name) for name in ("folder", "folder/pack", *own)}
    given.add(str(tmp_path / "folder/include"))
    made = [str(tmp_path / name) for name in MADE]
    return StartedCommands(
        f"{tmp_path}/",
        given,
        f"{tmp_path}/program",
        ["x" * 50, "short(1)\n"],
        lambda: iter(made),
        {"PYTHONPATH": f"{tmp_path}/given-from-outside"},
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["python", "check.py", "made/a.out"], False),
        (["timeout", "5", "python", "check.py", "made/a.out"], False),
        (["gcc", "tool.c", "-o", "tool"], False),
        (["curl", "https://example.org"], False),
        (["python", "-m", "check"], False),
        (["sh", "-c", ". own.sh"], False),
        (["sh", "-c", "gcc tool.c -o tool && python check.py < made/a.out"], False),
        (["sh", "own.sh"], False),
        (["./own.sh"], False),
        (["make"], False),
        (["make", "-f", "Makefile", "all"], False),
        (["sh", "-eu", "own.sh"], False),
        (["bash", "-lc", "gcc tool.c -o tool"], False),
        (["python", "-u", "-W", "error", "-Xdev", "check.py"], False),
        (["node", "--max-old-space-size=100", "check.py"], False),
        (["python"], True),
        (["python", "-"], True),
        (["python", "-Im", "check"], True),
        (["python", "-W", "ignore", "-m", "usercode"], True),
        (["python", "-m", "pytest", "check.py"], True),
        (["python", "-c", "import usercode"], True),
        (["python", "-c", "exec(bytes.fromhex('7072696e74283129'))"], True),
        (["python", "-c", "pass", "check.py"], True),
        (["node", "-r", "./module.js", "check.py"], True),
        (["node", "--require=./module.js", "check.py"], True),
        (["perl", "-e", "print 1"], True),
        (["bash", "-lc", "python -m usercode"], True),
        (["sh", "-c", "PYTHONPATH={root}/made gcc tool.c"], True),
        (["sh", "-c", "export PYTHONPATH={root}/made; true"], True),
        (["env", "NODE_PATH=made", "gcc", "tool.c"], True),
        (["pytest", "check.py"], True),
        (["find", ".", "-name", "*.py", "-exec", "python", "{}", ";"], True),
        (["python", "-c", "x" * 60], True),
        (["python", "-c", "short(1), print(1)"], True),
        (["python", "-m", "made"], True),
        (["python", "-m", "theirs"], True),
        (["sh", "-c", ". ./theirs.py"], True),
        (["bash", "-c", "source ./theirs.py"], True),
        (["python", "-m", "timeit", "-s", "import {program}/candidate.py"], True),
        (["make", "-C", "made"], True),
        (["make", "-f", "-"], True),
        (["make", "-f", "Other.mk"], True),
        (["sqlite3", ":memory:"], True),
        (["sqlite3", "data.txt"], True),
        (["gdb", "-q", "data.txt"], True),
        (["python", "-i", "check.py"], True),
        (["python", "-I", "check.py"], True),
        (["python", "-uE", "check.py"], True),
        (["python", "-S", "check.py"], True),
        (["./alone.py"], True),
        (["timeout", "5", "./alone.py"], True),
        (["./no_site.py"], True),
        (["./plain.py"], False),
        (["./checked.pl"], False),
        (["./typed.ts"], False),
        (["sh", "-c", "./alone.py"], True),
        (["./alone.sh"], True),
        (["make", "-f", "Alone.mk"], True),
        (["make", "-f", "Named.mk"], True),
        (["make", "-f", "Kept.mk"], False),
        (["make", "-f", "Left.mk"], True),
        (["make", "-f", "Script.mk"], True),
        (["make", "-f", "Shell.mk"], True),
        (["make", "-f", "Python.mk"], False),
        (["gcc", "-x", "c", "-", "-o", "tool"], True),
        (["sh", "-c", "cat data.txt | gcc -x c /dev/stdin"], True),
        (["sh", "-c", "curl -T - x < made/a.out"], True),
        (["sh", "-c", "diff data.txt <(python -m usercode)"], True),
        (["sh", "-c", "PYTHONPATH=. python check.py"], True),
        (["sh", "-c", "export PYTHONPATH=.\npython check.py"], True),
        (["sh", "-c", "PYTHONPATH=.; python check.py"], True),
        (["sh", "-c", "unset PYTHONPATH; python check.py"], True),
        (["env", "-i", "python", "check.py"], True),
        (["env", "A=1", "-u", "PYTHONPATH", "python", "check.py"], True),
        (["sh", "-c", "PYTHONPATH=.:$PYTHONPATH python check.py"], False),
        (["env", "A=1", "nice", "-n", "3", "python", "check.py"], False),
        (["env", "-u", "X", "python", "check.py"], False),
        (["env", "--unset=X", "-uY", "A=1", "python", "check.py"], False),
        (["env", "-u", "X", "-i", "python", "check.py"], True),
        (["env", "-C", "made", "python", "check.py"], True),
        (["env", "--chdir=made", "python", "check.py"], True),
        (["/usr/bin/time", "-f", "%e", "-o", "log", "python", "check.py"], False),
        (["stdbuf", "-o", "L", "-eL", "python", "check.py"], False),
        (["timeout", "-s", "KILL", "5", "python", "check.py"], False),
        (["timeout", "--signal", "KILL", "-k", "1", "0.5m", "python", "check.py"], False),
        (["timeout", "--signal=KILL", "5", "python", "check.py"], False),
        (["timeout", "-s", "KILL", "5", "./made/a.out"], True),
        (["taskset", "0x1", "nice", "--adjustment", "3", "python", "check.py"], False),
        (["taskset", "-c", "0,2-3", "python", "check.py"], False),
        (["prlimit", "--as=4000000000", "-t5", "python", "check.py"], False),
        (["taskset", "0x1", "python", "theirs.py"], True),
        (["sh", "-c", "exec -a name python check.py"], False),
        (["xargs", "-a", "data.txt", "-n", "1", "python", "check.py"], False),
        (["make", "-f", "Wild.mk"], True),
        (["make", "-f-"], True),
        (["make", "-sCmade"], True),
        (["make", "--directory=made"], True),
        (["make", "-sfMakefile"], False),
        (["ninja", "run"], True),
        (["ctest"], True),
        (["python", "."], True),
        (["python", "-m", "pack.own"], True),
        (["sh", "-c", "trap 'python -m theirs' EXIT"], True),
        (["cargo", "run"], True),
        (["go", "test", "./..."], True),
        (["cmake", "-P", "theirs.cmake"], True),
        (["gcc", "-fplugin=./made/a.out", "tool.c"], True),
        (["perl", "-w", "check.py"], False),
        (["php", "-f", "check.py"], False),
        (["deno", "run", "check.py"], False),
        (["julia", "-t", "4", "check.py"], False),
        (["bash", "--norc", "own.sh"], False),
        (["bash", "-ce", "gcc tool.c"], False),
        (["sed", "-i", "s/a/b/", "data.txt"], False),
        (["cargo", "build"], False),
        (["./made/a.out"], True),
        (["timeout", "-k", "1", "5", "./made/a.out"], True),
        (["gcc", "solution.cpp"], True),
        (["gcc", "use.c"], False),
        (["gcc", "-Iinclude", "use.c"], True),
        (["gcc", "-I", "include", "use.c"], True),
        (["make", "-f", "Use.mk"], True),
        (["gcc", "@made/a.out", "tool.c"], True),
        (["sh", "-c", "python check.py; cd made; ./a.out"], True),
        (["bash", "-c", "python check.py $X | tee log; exec $PROGRAM"], True),
        (["sh", "-c", "`which python` check.py"], True),
        (["sh", "-c", "python 'open"], True),
        (["sh", "theirs.sh"], True),
        (["sh", "own_run.sh"], True),  # the tool may have been built of anything here
        (["./own.sh", "{program}/candidate.py"], True),
        (["env", "A=1", "sh", "own.sh", "made/a.out"], True),
        (["make", "-f", "Theirs.mk"], True),
        (["make", "solution"], True),
        (["make", "PROGRAM={program}/candidate.py"], True),
    ],
)
def test_a_command_counts_if_its_words_or_those_of_its_script_lead_to_the_candidate(
    commands, tmp_path, words, expected
):
    words = [word.replace("{program}", f"{tmp_path}/program") for word in words]
    words = [word.replace("{root}", f"{tmp_path}/folder") for word in words]
    assert commands.run_candidate(words, f"{tmp_path}/folder", {}) is expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tclsh"], True),
        (["sh", "-c", "tclsh"], True),
        (["gcc", "-x", "c", "/dev/fd/0"], True),
        (["as"], True),
        (["python", "check.py"], False),
        (["diff", "-", "data.txt"], False),
    ],
)
def test_a_program_that_may_read_code_counts_if_it_is_given_input(tmp_path, words, expected):
    (tmp_path / "folder").mkdir()
    for name in ("check.py", "data.txt"):
        (tmp_path / "folder" / name).touch()
    given = {f"{tmp_path}/folder/{name}" for name in ("check.py", "data.txt")} | {
        f"{tmp_path}/folder"
    }
    commands = StartedCommands(f"{tmp_path}/", given, f"{tmp_path}/program", [], list, {})
    assert commands.run_candidate(words, f"{tmp_path}/folder", {}, is_fed=True) is expected


def test_code_of_the_candidate_in_a_variable_counts(commands, tmp_path):
    words = ["sh", "-c", "echo $CODE | curl -T - x"]
    assert commands.run_candidate(words, f"{tmp_path}/folder", {"CODE": "x" * 50})


@pytest.mark.parametrize(
    ("name", "place"), [("ANY", "program"), ("PYTHONPATH", "folder:{}/elsewhere")]
)
def test_a_variable_that_leads_to_the_candidate_counts(commands, tmp_path, name, place):
    (tmp_path / "elsewhere").mkdir()
    environment = {name: f"{tmp_path}/{place.format(tmp_path)}"}
    assert commands.run_candidate(["curl", "x"], f"{tmp_path}/folder", environment)


def test_a_place_that_a_variable_named_from_the_start_was_not_made(commands, tmp_path):
    (tmp_path / "given-from-outside").mkdir()
    environment = {"PYTHONPATH": f"{tmp_path}/folder:{tmp_path}/given-from-outside"}
    assert not commands.run_candidate(["curl", "x"], f"{tmp_path}/folder", environment)


@pytest.mark.parametrize(
    ("words", "path", "expected"),
    [
        (["{made}/lua", "check.py"], "/bin", True),
        (["made/lua", "check.py"], "/bin", True),
        (["lua", "check.py"], "{made}", True),
        (["lua", "check.py"], "/bin:made", True),
        (["python", "check.py"], "{made}", False),
        (["{made}/timeout", "9", "python", "check.py"], "/bin", True),
        (["timeout", "9", "python", "check.py"], "/bin:{made}", True),
        (["./plain.py"], "/bin", False),
        (["./scripted.py"], "/bin", False),
        (["./scripted.py"], "{made}", True),
        (["sh", "-c", "lua check.py"], "{made}", True),
    ],
)
def test_a_program_that_was_made_counts_whatever_its_name_is(
    commands, tmp_path, words, path, expected
):
    made = f"{tmp_path}/folder/made"
    for name in ("lua", "timeout"):
        (tmp_path / "folder" / "made" / name).touch()
    words = [word.replace("{made}", made) for word in words]
    environment = {"PATH": path.replace("{made}", made)}
    assert commands.run_candidate(words, f"{tmp_path}/folder", environment) is expected


def test_every_command_counts_in_a_folder_that_was_made(commands, tmp_path):
    assert commands.run_candidate(["curl", "x"], f"{tmp_path}/folder/made", {})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["yosys", "-s", "check.py"], False),
        (["sh", "-c", "gcc tool.c -o tool && ./tool"], False),
        (["yosys", "-s", "{folder}/check.py"], False),
        (["hyperfine", "python3 -I check.py"], True),
        (["hyperfine", "python3 check.py"], False),
        (["hyperfine", "python3 -W a\\:b \\\n -X \\\n dev -I check.py"], True),
        (["hyperfine", "python " + "-a\\" * 100], False),  # many ways to read it take too long
        (["hyperfine", "python " + "-W " * 100], False),
        (["java", "-cp", "{folder}", "Main"], False),
        (["java", "-cp", "{folder}/elsewhere", "Main"], True),
        (["awk", 'BEGIN { system("python {root}/home/copy.py") }'], True),
        (["awk", 'BEGIN { system("python ../home/copy.py") }'], True),
        (["python", "-m", "pytest"], True),
    ],
)
def test_a_program_that_nobody_knows_counts_if_it_may_find_what_is_not_the_evaluators(
    tmp_path, words, expected
):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "check.py").touch()
    given = {f"{tmp_path}/folder", f"{tmp_path}/folder/check.py"}
    commands = StartedCommands(f"{tmp_path}/", given, f"{tmp_path}/program", [], list, {})
    places = {"{folder}": f"{tmp_path}/folder", "{root}": str(tmp_path)}
    for name, place in places.items():
        words = [word.replace(name, place) for word in words]
    assert commands.run_candidate(words, f"{tmp_path}/folder", {}) is expected
