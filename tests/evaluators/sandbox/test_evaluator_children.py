"""What an evaluator starts that runs its candidate can neither read the answers nor reach it."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest
from needed_programs import require
from sandbox_runs import FORTRAN

from costada.evaluators.folder_files import EvaluatorFile
from costada.evaluators.sandbox.candidate_runs import run_evaluator
from costada.evaluators.sandbox.inside.command_site import code_of, confine_in_commands
from costada.evaluators.sandbox.inside.commands_sitecustomize import CHILDREN
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits

pytestmark = pytest.mark.process

LIMITS = Limits(wall_seconds=60, processes=16)
PROBE = """
import ctypes, json, os, pathlib, subprocess, sys, tempfile
folder, answers = pathlib.Path(sys.argv[1]), "answers.txt"
def tried(function):
    try: return int(function() is not False)
    except OSError: return 0
def rewrite():
    with open(folder / "data" / answers, "a") as file: file.write("x")
child = "import sys; print(open(sys.argv[1]).read())"
def by_child():
    command = [sys.executable, "-c", child, str(folder / "data" / answers)]
    return subprocess.run(command, capture_output=True).returncode == 0
print(json.dumps({
    "reads": tried((folder / "data" / answers).read_text),
    "reads through a child": tried(by_child),
    "reads the evaluator": tried((folder / "evaluator.py").read_text),
    "writes": tried(rewrite),
    "adds": tried(lambda: (folder / "new").write_text("x")),
    "removes": tried((folder / "data" / answers).unlink),
    "links": tried(lambda: os.link(folder / "data" / answers, tempfile.gettempdir() + "/a")),
    "signals": tried(lambda: os.kill(int(sys.argv[3]), 0)),
    "reads memory": tried(lambda: open(f"/proc/{int(sys.argv[3])}/mem", "rb").read(1)),
    "lists shared memory": tried(lambda: os.listdir("/dev/shm")),
    "uses its temporary folder": tried(lambda: tempfile.TemporaryFile().write(b"x")),
    "reads what is named": tried(lambda: open(sys.argv[2]).read()),
}))
"""
ALLOWED = {"uses its temporary folder", "reads what is named"}
STARTING = """
import json, os, shutil, subprocess, sys, tempfile
HERE = os.path.dirname(os.path.abspath(__file__))
GIVEN = os.path.join(HERE, "data", "given.txt")
ME = str(os.getpid())
LISTED = ["data/answers.txt", "run.sh", "find.sh", "Makefile", "stub.py", "runner.py", "alone.py"]
def evaluate(path):
    said = START
    if said.returncode: raise RuntimeError(said.stderr)
    return json.loads(said.stdout)
def run(*words, **named):
    return subprocess.run(*words, capture_output=True, text=True, **named)
def script(path):
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(f"import runpy\\nrunpy.run_path({path!r})\\n")
    return file.name
def elsewhere(path):
    place = tempfile.mkdtemp()
    shutil.copy(path, os.path.join(place, "one.py"))
    return place
def finding(place):
    return {**os.environ, "PYTHONPATH": place}
def with_tool(path):
    place = tempfile.mkdtemp()
    with open(path) as file, open(os.path.join(place, "one"), "w") as tool:
        tool.write(f"#!{sys.executable}\\n{file.read()}")
    os.chmod(os.path.join(place, "one"), 0o755)
    return {**os.environ, "PATH": f"{place}:{os.environ['PATH']}"}
def encoded(path):
    with open(path, "rb") as file:
        return f"exec(bytes.fromhex({file.read().hex()!r}))"
def spawned(start, words):
    reading, writing = os.pipe()
    number = start(words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1)])
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    status = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    return subprocess.CompletedProcess(words, status, text, "")
def bare(start):
    kept = {"TMPDIR": os.environ["TMPDIR"]}
    return lambda path, words, environment, **named: start(path, words, kept, **named)
def by_spawnv(words):
    with tempfile.TemporaryFile("w+") as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        status = os.spawnv(os.P_WAIT, words[0], words)
        os.dup2(kept, 1)
        file.seek(0)
        return subprocess.CompletedProcess(words, status, file.read(), "")
"""
STARTS = {
    "path": "run([sys.executable, path, HERE, GIVEN, ME])",
    "copy": "run([sys.executable, shutil.copy(path, 'copy.py'), HERE, GIVEN, ME])",
    "script": "run([sys.executable, script(path), HERE, GIVEN, ME])",
    "code": "run([sys.executable, '-c', open(path).read(), HERE, GIVEN, ME])",
    "code without its last newline": (
        "run([sys.executable, '-c', open(path).read().strip(), HERE, GIVEN, ME])"
    ),
    "copy in the place of a file of the evaluator": (
        "shutil.copy(path, 'stub.py') and run([sys.executable, 'stub.py', HERE, GIVEN, ME])"
    ),
    "module": (
        "shutil.copy(path, 'one.py') and run([sys.executable, '-m', 'one', HERE, GIVEN, ME])"
    ),
    "module elsewhere": (
        "run([sys.executable, '-m', 'one', HERE, GIVEN, ME], env=finding(elsewhere(path)))"
    ),
    "import elsewhere": (
        "run([sys.executable, '-c', 'import one', HERE, GIVEN, ME], env=finding(elsewhere(path)))"
    ),
    "import elsewhere, in a shell": (
        "run(f'PYTHONPATH={elsewhere(path)} {sys.executable} -m one {HERE} {GIVEN} {ME}',"
        " shell=True)"
    ),
    "import of a copy": (
        "shutil.copy(path, 'one.py') and run([sys.executable, '-c', 'import one', HERE, GIVEN, ME])"
    ),
    "encoded code": "run([sys.executable, '-c', encoded(path), HERE, GIVEN, ME])",
    "pipe": "run([sys.executable, '-', HERE, GIVEN, ME], input=open(path).read())",
    "shell": "run(f'{sys.executable} {path} {HERE} {GIVEN} {ME}', shell=True)",
    "shell, by a relative name": (
        "shutil.copy(path, 'copy.py') and"
        " run(f'cd . && {sys.executable} copy.py {HERE} {GIVEN} {ME} | cat', shell=True)"
    ),
    "shell, in another folder": (
        "shutil.copy(path, '../home/copy.py') and"
        " run(f'cd ../home && {sys.executable} ./copy.py {HERE} {GIVEN} {ME}', shell=True)"
    ),
    "shell script": "run(['sh', 'run.sh', sys.executable, path, HERE, GIVEN, ME])",
    "shell script that finds it": (
        "shutil.copy(path, 'copy.py') and run(['./find.sh', sys.executable, HERE, GIVEN, ME])"
    ),
    "makefile": (
        "shutil.copy(path, 'copy.py') and"
        " run(['make', '-s', f'PYTHON={sys.executable}', f'WORDS={HERE} {GIVEN} {ME}'])"
    ),
    "environment": (
        "run(['sh', '-c', 'exec $PYTHON $PROGRAM \"$@\"', 'sh', HERE, GIVEN, ME], env={"
        "**os.environ, 'PYTHON': sys.executable, 'PROGRAM': path})"
    ),
    "wrapped": "run(['timeout', '30', sys.executable, path, HERE, GIVEN, ME])",
    "program of the evaluator": (
        "run([sys.executable, 'runner.py', sys.executable, path, HERE, GIVEN, ME])"
    ),
    "program of the evaluator that finds it": (
        "run([sys.executable, 'runner.py', 'one', HERE, GIVEN, ME], env=with_tool(path))"
    ),
    "program of the evaluator, with other variables": (
        "run([sys.executable, 'runner.py', sys.executable, path, HERE, GIVEN, ME],"
        " env={'PYTHONPATH': HERE, 'TMPDIR': os.environ['TMPDIR']})"
    ),
    "program of the evaluator, by posix_spawn with no variables": (
        "spawned(bare(os.posix_spawn),"
        " [sys.executable, 'runner.py', sys.executable, path, HERE, GIVEN, ME])"
    ),
    "program of the evaluator that starts a copy in the place of another file": (
        "shutil.copy(path, 'stub.py') and"
        " run([sys.executable, 'runner.py', sys.executable, 'stub.py', HERE, GIVEN, ME])"
    ),
    "program of the evaluator whose first line has Python ignore variables": (
        "run(['./alone.py', sys.executable, path, HERE, GIVEN, ME])"
    ),
    "makefile that has Python ignore variables": (
        "run(['make', '-s', 'alone', f'PYTHON={sys.executable}', f'WORDS={HERE} {GIVEN} {ME}'],"
        " env={**os.environ, 'PLACE': elsewhere(path)})"
    ),
    "posix_spawn": "spawned(os.posix_spawn, [sys.executable, path, HERE, GIVEN, ME])",
    "posix_spawnp": "spawned(os.posix_spawnp, [sys.executable, path, HERE, GIVEN, ME])",
    "spawnv": "by_spawnv([sys.executable, path, HERE, GIVEN, ME])",
}
RUNNER = "import subprocess, sys\nsys.exit(subprocess.run(sys.argv[1:]).returncode)\n"
SCRIPTS = {
    "run.sh": '#!/bin/sh\nexec "$@"\n',
    "stub.py": "",
    "runner.py": RUNNER,
    "alone.py": f"#!{sys.executable} -I\n{RUNNER}",
    "find.sh": '#!/bin/sh\nfor each in copy; do "$1" $each.py $2 $3 $4; done\n',
    "Makefile": (
        "all:\n\t@$(PYTHON) copy.py $(WORDS)\n"
        "alone:\n\t@$(PYTHON) -I runner.py $(PYTHON) $$PLACE/one.py $(WORDS)\n"
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("problem")
    (place / "data").mkdir()
    (place / "data" / "answers.txt").write_text("42")
    (place / "data" / "given.txt").write_text("6 * 7")
    for name, text in SCRIPTS.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    return place


def evaluate(folder, text, source, layer, name="candidate.py"):
    (folder / "evaluator.py").write_text(text)
    evaluator = EvaluatorFile(folder, folder / "evaluator.py")
    return run_evaluator(source, evaluator, LIMITS, layer, (), file_name=name)


UNCHANGED = """
    if os.path.exists("new") or open("data/answers.txt").read() != "42":
        raise RuntimeError("changed")
    return"""
IN_LINKS = {"adds", "removes", "writes"}
"""What a build does in the folder of links in which it works, and the evaluator never sees."""

TRIED = [(Layer.LANDLOCK, start) for start in STARTS]
TRIED += [(Layer.BUBBLEWRAP, start) for start in ("copy", "shell", "makefile", "posix_spawn")]
"""What is confined inside of Bubblewrap is found and confined by the same code."""


@pytest.mark.parametrize(("confined", "start"), TRIED, indirect=["confined"])
def test_a_candidate_that_is_started_reaches_nothing_of_the_evaluator(confined, folder, start):
    text = STARTING.replace("START", STARTS[start]).replace("    return", UNCHANGED, 1)
    result = evaluate(folder, text, PROBE, confined)
    assert result.error is None
    done = {name for name, is_done in result.output["metrics"].items() if is_done}
    assert done == ALLOWED | (IN_LINKS if start.startswith("makefile") else set())


NAMED = """
import json, os, subprocess, sys, tempfile
LISTED = ["answers.txt", "own.lua", "own.sh", "own.py", "started"]
def evaluate(path):
    place = tempfile.mkdtemp()
    for name in ("lua", "sh", "timeout"):
        with open(path) as file, open(os.path.join(place, name), "w") as tool:
            tool.write(f"#!{sys.executable}\\n{file.read()}")
        os.chmod(tool.name, 0o755)
    first = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}"}
    python, words, named = sys.executable, [], {}
    START
    return json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True, **named).stdout)
"""
LOOKING = """
import json
try: print(json.dumps({"reads": len(open("answers.txt").read())}))
except OSError: print(json.dumps({"reads": 0}))
"""


@pytest.mark.parametrize(
    "start",
    [
        "words = [f'{place}/lua', 'own.lua']",
        "words, named = ['lua', 'own.lua'], {'env': first}",
        "words, named = 'lua own.lua', {'env': first, 'shell': True}",
        "words = [f'{place}/sh', 'own.sh']",
        "words = [f'{place}/timeout', '9', python, 'own.py']",
        "words, named = ['timeout', '9', python, 'own.py'], {'env': first}",
        "words, named = ['./started'], {'env': first}",
    ],
)
def test_a_candidate_is_confined_that_is_named_like_an_interpreter(confined, tmp_path, start):
    for name in ("own.lua", "own.sh", "own.py", "started"):
        (tmp_path / name).write_text("#!/usr/bin/env lua\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "answers.txt").write_text("42")
    result = evaluate(tmp_path, NAMED.replace("START", start), LOOKING, confined)
    assert (result.error, result.output["metrics"]) == (None, {"reads": 0.0})


def test_a_fork_of_the_evaluator_that_becomes_the_candidate_does_not_either(confined, folder):
    becoming = (
        "def evaluate(path):\n"
        "    with open('said', 'w') as file:\n"
        "        if not (number := os.fork()):\n"
        "            os.dup2(file.fileno(), 1)\n"
        "            os.execv(sys.executable, [sys.executable, path, HERE, GIVEN, ME])\n"
        "        os.waitpid(number, 0)\n"
        "    return json.load(open('said'))\n"
    )
    text = STARTING.replace("START", "None") + becoming
    metrics = evaluate(folder, text, PROBE, confined).output["metrics"]
    assert {name for name, is_done in metrics.items() if is_done} == ALLOWED


WITH_UVLOOP = """
import asyncio, json, os, sys, uvloop
LISTED = "data/answers.txt"
async def started(*words):
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    return json.loads((await process.communicate())[0])
async def again(path): return await started(sys.executable, path)
def evaluate(path):
    uvloop.install()
    found = [uvloop.run(again(path)), asyncio.run(again(path))]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found.append(runner.run(again(path)))
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    found.append(asyncio.run(again(path)))
    return {"num_read": sum(found), "num_started": len(found)}
"""


@pytest.mark.skipif(find_spec("uvloop") is None, reason="uvloop is not installed")
@pytest.mark.parametrize("place", ["evaluator", "script"])
def test_a_candidate_that_an_event_loop_starts_in_c_reads_nothing(confined, folder, place):
    text = WITH_UVLOOP
    if place == "script":
        script = f"{WITH_UVLOOP}print(json.dumps(evaluate(sys.argv[1])))\n"
        (folder / "looping.py").write_text(script)
        text = STARTING.replace("START", "run([sys.executable, 'looping.py', path])")
    source = "try: print(len(open('data/answers.txt').read()))\nexcept OSError: print(0)\n"
    result = evaluate(folder, text, source, confined)
    assert result.error is None
    assert result.output["metrics"] == {"num_read": 0.0, "num_started": 4.0}


def test_a_candidate_starts_beside_more_files_than_can_be_open(confined, folder):
    text = (
        "import subprocess, sys\n"
        "def evaluate(path):\n"
        "    for number in range(300): open(f'made-{number}', 'w').close()\n"
        "    command = [sys.executable, path]\n"
        "    return {'said': float(subprocess.run(command, capture_output=True).stdout)}\n"
    )
    result = evaluate(folder, text, "print(open('made-299').read() or 7)", confined)
    assert result.error is None
    assert result.output["metrics"] == {"said": 7.0}


def test_a_script_of_the_evaluator_is_a_part_of_it(confined, folder):
    (folder / "worker.py").write_text(
        "import json, runpy, sys\n"
        "answer = runpy.run_path(sys.argv[1])['answer']\n"
        "print(json.dumps({'right': answer == int(open('data/answers.txt').read())}))\n"
    )
    text = STARTING.replace("START", "run([sys.executable, 'worker.py', path])")
    result = evaluate(folder, text, "answer = 42\n", confined)
    assert (result.error, result.output["metrics"]) == (None, {"right": 1.0})


@pytest.mark.parametrize(
    "wrapper",
    [
        *(["env", "-u", "X"], ["/usr/bin/time", "-f", "%e"], ["stdbuf", "-o", "L"]),
        *(["timeout", "-s", "KILL", "50"], ["timeout", "--signal=KILL", "50"], ["taskset", "0x1"]),
    ],
    ids=" ".join,
)
def test_a_script_of_the_evaluator_behind_a_wrapper_is_a_part_of_it(confined, folder, wrapper):
    if wrapper[0] == "/usr/bin/time":
        require(wrapper[0])
    (folder / "reader.py").write_text("print(open('data/answers.txt').read())\n")
    text = STARTING.replace("START", f"run([*{wrapper}, sys.executable, 'reader.py', path])")
    text = text.replace("json.loads(said.stdout)", "{'right': said.stdout == '42\\n'}")
    result = evaluate(folder, text, "x = 1\n", confined)
    assert (result.error, result.output and result.output["metrics"]) == (None, {"right": 1.0})


def test_a_candidate_that_is_started_imports_the_modules_of_the_start_and_no_others(
    confined, tmp_path
):
    (tmp_path / "workloads.py").write_text("import sizes\nWORK = sizes.SIZE\n")
    (tmp_path / "sizes.py").write_text("SIZE = 7\n")
    (tmp_path / "answers.py").write_text("WORK = 42\n")
    (tmp_path / "evaluator.py").write_text(
        STARTING.replace("START", "run([sys.executable, path], env={'PYTHONPATH': HERE})")
        + "import answers, workloads\n"
    )
    source = "import json\nfrom MODULE import WORK\nprint(json.dumps({'work': WORK}))\n"
    path = tmp_path / "evaluator.py"
    evaluator = EvaluatorFile(tmp_path, path, imported=("workloads", "workloads.WORK", "json"))
    results = [
        run_evaluator(source.replace("MODULE", name), evaluator, LIMITS, confined, ())
        for name in ("workloads", "answers", "evaluator")
    ]
    assert [results[0].error, results[0].output["metrics"]] == [None, {"work": 7.0}]
    assert [result.error is None for result in results[1:]] == [False, False]


def test_pytest_finds_the_tests_of_a_candidate(confined, tmp_path):
    """It lists the folder that holds both the candidate's and the evaluator's."""
    text = STARTING.replace("START", "run(['pytest', path], env=WITH_PYTEST)").replace(
        "return json.loads(said.stdout)", "return {'passed': '1 passed' in said.stdout}"
    )
    bin_folder = os.path.dirname(sys.executable)
    fast = {"PATH": bin_folder, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    text += f"WITH_PYTEST = {{**os.environ, **{fast!r}}}\n"
    result = evaluate(tmp_path, text, "def test_it(): assert True\n", confined)
    assert (result.error, result.output["metrics"]) == (None, {"passed": 1.0})


LINKING = """
import os, sys
try: os.symlink(os.path.join(sys.argv[1], "data", "answers.txt"), os.environ["TMPDIR"] + "/out.txt")
except PermissionError: open(os.environ["TMPDIR"] + "/out.txt", "w").write("41")
"""
READING = STARTING.replace("START", "run([sys.executable, path, HERE])").replace(
    "return json.loads(said.stdout)",
    "out = open(os.environ['TMPDIR'] + '/out.txt').read()\n"
    "    return {'right': out == open('data/answers.txt').read()}",
)


def test_a_copy_beside_the_evaluator_imports_another_copy(confined, folder):
    start = "run([sys.executable, shutil.copy(path, 'first.py')])"
    text = STARTING.replace("START", f"shutil.copy(path, 'second.py') and {start}")
    source = "if __name__ == '__main__':\n    import second\n    print('{\"x\": 1}')\n"
    result = evaluate(folder, text, source, confined)
    assert (result.error, result.output["metrics"]) == (None, {"x": 1.0})


PLANTING = """
import os
os.makedirs(os.path.expanduser("~"), exist_ok=True)
with open(os.path.expanduser("~/.profile"), "w") as file: file.write("touch planted\\n")
"""


def test_a_candidate_leaves_no_start_up_files_for_the_tools_of_the_evaluator(confined, folder):
    start = (
        "run([sys.executable, path]).returncode or run(['bash', '-lc', 'echo {}; ls planted >&2'])"
    )
    result = evaluate(folder, STARTING.replace("START", start), PLANTING, confined)
    assert "cannot access" in result.error


def test_a_link_to_the_answers_is_no_answer(confined, folder):
    result = evaluate(folder, READING, LINKING, confined)
    assert (result.error, result.output["metrics"]) == (None, {"right": 0.0})
    honest = "import os\nopen(os.environ['TMPDIR'] + '/out.txt', 'w').write('42')\n"
    assert evaluate(folder, READING, honest, confined).output["metrics"] == {"right": 1.0}


BUILDING = """
import subprocess
LISTED = "data/answers.txt"
def evaluate(path):
    built = subprocess.run(["gcc", path, "-o", "solution"], capture_output=True, text=True)
    if built.returncode: return {"error": built.stderr, "combined_score": 0.0}
    said = subprocess.run(["./solution"], capture_output=True, text=True).stdout
    return {"combined_score": float(said)}
"""
FROM_A_PIPE = BUILDING.replace('["gcc", path,', '["gcc", "-x", "c", "-",').replace(
    "capture_output", "input=open(path).read(), capture_output"
)


@pytest.mark.parametrize(
    ("compiler", "name", "source"),
    [("gcc", "a.c", None), ("gfortran", "a.f90", FORTRAN)],
)
@pytest.mark.parametrize("steps", ["one", "two"])
def test_a_build_in_the_evaluators_folder_leaves_what_it_makes_there(
    confined, folder, compiler, name, source, steps
):
    require(compiler)
    builds = {"one": [[compiler, "PATH"]], "two": [[compiler, "-c", "PATH"], [compiler, "a.o"]]}
    text = (
        "import subprocess\n"
        "def evaluate(path):\n"
        f"    for words in {builds[steps]}:\n"
        "        words = [path if word == 'PATH' else word for word in words]\n"
        "        subprocess.run(words, check=True)\n"
        "    return {'said': float(subprocess.check_output(['./a.out']))}\n"
    )
    result = evaluate(folder, text, source or HONEST, confined, name)
    assert (result.error, result.output["metrics"]) == (None, {"said": 41.0})


HONEST = '#include <stdio.h>\nint main(void) { puts("41"); return 0; }\n'
INCLUDING = """
#include <stdio.h>
extern const char answers[];
__asm__(".data\\n.globl answers\\nanswers: .incbin \\"PATH\\"\\n.byte 0\\n");
int main(void) { puts(answers); return 0; }
"""


MAKING = """
import shutil, subprocess
LISTED = ["data/answers.txt", "data/given.txt", "Build.mk", "build.sh"]
def evaluate(path):
    shutil.copy(path, "solution.c")
    built = subprocess.run(COMMAND, capture_output=True, text=True)
    if built.returncode: raise RuntimeError(built.stderr)
    said = subprocess.run(["./solution"], capture_output=True, text=True).stdout
    return {"combined_score": float(said)}
"""
RULES = """
CFLAGS = -O1
solution: solution.o
\t$(CC) $^ -o $@
solution.o: solution.c
\t$(CC) -c $< -o $@
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize(
    "command", ["['make', '-f', 'Build.mk']", "['sh', 'build.sh']", "'./build.sh'"]
)
def test_a_script_or_makefile_of_the_evaluator_builds_the_candidate(confined, folder, command):
    (folder / "Build.mk").write_text(RULES)
    (folder / "build.sh").write_text("#!/bin/sh\ngcc solution.c -o solution\n")
    (folder / "build.sh").chmod(0o755)
    text = MAKING.replace("COMMAND", command)
    honest = evaluate(folder, text, HONEST, confined, "candidate.c")
    assert honest.error is None
    assert honest.output["metrics"] == {"combined_score": 41.0}
    stealing = INCLUDING.replace("PATH", "data/answers.txt")
    assert "answers.txt" in evaluate(folder, text, stealing, confined, "candidate.c").error


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("evaluator", [BUILDING, FROM_A_PIPE])
def test_a_build_includes_no_answers(confined, folder, evaluator):
    honest = evaluate(folder, evaluator, HONEST, confined, "candidate.c")
    assert honest.output["metrics"] == {"combined_score": 41.0}
    for path in ("data/answers.txt", "../program/../folder/data/answers.txt"):
        source = INCLUDING.replace("PATH", path)
        metrics = evaluate(folder, evaluator, source, confined, "candidate.c").output["metrics"]
        assert metrics["combined_score"] == 0.0
        assert "answers.txt" in json.dumps(metrics)


LEAVING = """
import ctypes, json, os, pathlib, subprocess, sys
folder, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
def called(name, *words):
    if getattr(libc, name)(*words) < 0: raise OSError(ctypes.get_errno(), name)
def tried(function):
    try: return int(function() is not False)
    except OSError: return 0
def asks_another():
    code = "print(open(%r).read())" % str(folder / "data" / "answers.txt")
    return not os.waitpid(os.posix_spawn(
        sys.executable, [sys.executable, "-c", code], {}), 0)[1]
def by_the_evaluators_script():
    return subprocess.run([sys.executable, str(folder / "reveal.py")]).returncode == 0
tried(lambda: os.kill(-1, 9))  # the evaluator lives on, or nothing is answered
print(json.dumps({
    "new user namespace": tried(lambda: called("unshare", 0x10000000)),
    "new mount namespace": tried(lambda: called("unshare", 0x00020000)),
    "enters a namespace": tried(lambda: os.open(f"/proc/{number}/ns/mnt", os.O_RDONLY)),
    "mounts": tried(lambda: called("mount", b"x", b"/tmp", b"tmpfs", 0, None)),
    "changes its root": tried(lambda: os.chroot("/")),
    "traces the evaluator": tried(lambda: called("ptrace", 16, number, 0, 0)),
    "stops the evaluator": tried(lambda: os.kill(number, 19)),
    "binds the evaluator to a core": tried(lambda: os.sched_setaffinity(number, {0})),
    "makes a device": tried(lambda: os.mknod("/tmp/null", 0o20666, os.makedev(1, 3))),
    "writes by /proc": tried(lambda: open(f"/proc/{number}/cwd/new", "w")),
    "writes by a descriptor": tried(lambda: open(f"/proc/{number}/fd/1", "w")),
    "asks another process": tried(asks_another),
    "runs a script of the evaluator": tried(by_the_evaluators_script),
    "reads the home folder": tried(lambda: open(os.path.expanduser("~root/.profile")).read()),
}))
"""


@pytest.mark.parametrize("start", ["run({words})", "spawned(os.posix_spawn, {words})"])
def test_a_child_does_not_leave_its_confinement(confined, folder, start):
    (folder / "reveal.py").write_text("print(open('data/answers.txt').read())\n")
    start = start.replace("{words}", "[sys.executable, path, HERE, ME]")
    result = evaluate(folder, STARTING.replace("START", start), LEAVING, confined)
    assert result.error is None
    assert {name for name, is_done in result.output["metrics"].items() if is_done} == set()


OPENING = """
import os, sys
def evaluate(path):
    flags = os.O_CREAT | os.O_WRONLY
    opened = (os.POSIX_SPAWN_OPEN, 1, FILE, flags, 0o600)
    number = os.posix_spawn(sys.executable, [sys.executable, path], {}, file_actions=[opened])
    assert os.waitpid(number, 0)[1] == 0
    return {"combined_score": float(open(FILE).read())}
"""


def test_the_evaluator_opens_what_a_spawned_program_is_redirected_to(confined, folder):
    evaluator = OPENING.replace("FILE", "'said.txt'")
    result = evaluate(folder, evaluator, "print(0.5)", confined)
    assert result.output["metrics"] == {"combined_score": 0.5}
    absent = evaluate(folder, OPENING.replace("FILE", "'no/said.txt'"), "", confined)
    assert absent.error.startswith("FileNotFoundError: [Errno 2] No such file or directory: 'no/")


REDIRECTING = """
import os, sys
def evaluate(path):
    flags = os.O_CREAT | os.O_WRONLY
    def opened(number, name): return (os.POSIX_SPAWN_OPEN, number, name, flags, 0o600)
    lowest = os.dup(0)
    os.close(lowest)
    free = range(lowest, lowest + 8)
    actions = [*ACTIONS, opened(1, "said.txt")]
    number = os.posix_spawn(sys.executable, [sys.executable, path], {}, file_actions=actions)
    assert os.waitpid(number, 0)[1] == 0
    return {"combined_score": float(open("said.txt").read())}
"""


@pytest.mark.parametrize(
    "actions",
    [
        "((os.POSIX_SPAWN_DUP2, 2, each) for each in free)",
        "((os.POSIX_SPAWN_CLOSE, each) for each in free)",
        "(opened(each, f'{each}.txt') for each in free)",
    ],
)
def test_files_of_a_spawned_program_keep_to_their_descriptors(confined, folder, actions):
    evaluator = REDIRECTING.replace("ACTIONS", actions)
    result = evaluate(folder, evaluator, "print(0.5)", confined)
    assert result.output["metrics"] == {"combined_score": 0.5}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_a_build_reads_nothing_in_the_home_folder(confined, folder, tmp_path):
    (tmp_path / "key").write_text("CANARY")
    for path in (tmp_path / "key", f"/proc/self/root{tmp_path}/key"):
        source = INCLUDING.replace("PATH", str(path))
        result = evaluate(folder, BUILDING, source, confined, "candidate.c")
        assert result.output["metrics"]["combined_score"] == 0.0
        assert "CANARY" not in f"{result}"


TOOL = {
    "Makefile": "tool: tool.o number.o\n\t$(CC) $^ -o $@\n%.o: %.c number.h\n\t$(CC) -c $<\n",
    "tool.c": '#include <stdio.h>\n#include "number.h"\nint main(void) { printf("%d", NUMBER); }\n',
    "number.h": "#define NUMBER 41\n",
    "number.c": "int number(void);\nint number(void) { return 41; }\n",
}
WITH_CANDIDATE = {
    "Makefile": (
        "build/main: main.c solution.c\n\tmkdir -p build\n\t$(CC) main.c solution.c -o $@\n"
    ),
    "main.c": '#include <stdio.h>\n#include "value.h"\nint main(void) { printf("%d", value()); }\n',
    "value.h": "int value(void);\n",
}
VALUE = "int value(void);\nint value(void) { return 41; }\n"
MAKE_CASES = {
    "of the evaluator": (TOOL, "subprocess.run(['make'], check=True)", "tool", VALUE),
    "of the candidate": (
        WITH_CANDIDATE,
        "shutil.copy(path, 'solution.c'); subprocess.run(['make'], check=True)",
        "build/main",
        VALUE,
    ),
    "by a shell": (
        WITH_CANDIDATE,
        "shutil.copy(path, 'solution.c'); subprocess.run('make -s', shell=True, check=True)",
        "build/main",
        VALUE,
    ),
}


def write_problem(folder, files, body):
    folder.mkdir(parents=True)
    (folder / "answers.txt").write_text("42")
    for name, text in files.items():
        (folder / name).write_text(text)
    return (
        "import json, os, shutil, subprocess, sys\nANSWERS = 'answers.txt'\n"
        f"def evaluate(path):\n    {body}\n"
    )


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("case", MAKE_CASES)
def test_make_finds_its_makefile_and_sources_though_no_code_names_them(confined, tmp_path, case):
    files, start, program, source = MAKE_CASES[case]
    body = f"{start}\n    return {{'said': float(subprocess.check_output(['./{program}']))}}"
    text = write_problem(tmp_path / "problem", files, body)
    result = evaluate(tmp_path / "problem", text, source, confined, "candidate.c")
    assert (result.error, result.output and result.output["metrics"]) == (None, {"said": 41.0})
    if case != "of the evaluator":
        stealing = INCLUDING.replace("PATH", "answers.txt")
        stolen = evaluate(tmp_path / "problem", text, stealing, confined, "candidate.c")
        assert stolen.output is None


WRITING = {
    "a name in both texts": (
        "subprocess.run([sys.executable, path], check=True)",
        "open('out.json', 'w').write('41')",
        "out.json",
    ),
    "a word of the command": (
        "subprocess.run([sys.executable, path, '--out=said.txt'], check=True)",
        "import sys\nopen(sys.argv[1].partition('=')[2], 'w').write('41')",
        "said.txt",
    ),
    "in a new folder": (
        "subprocess.run([sys.executable, path, 'out/said.txt'], check=True)",
        "import sys\nopen(sys.argv[1], 'w').write('41')",
        "out/said.txt",
    ),
    "a shell's redirection": (
        "subprocess.run(f'{sys.executable} {path} > said.txt', shell=True, check=True)",
        "print(41)",
        "said.txt",
    ),
}


@pytest.mark.parametrize("case", WRITING)
def test_a_program_writes_the_file_beside_the_evaluator_that_both_expect(confined, tmp_path, case):
    start, source, name = WRITING[case]
    body = f"{start}\n    return {{'said': float(open({name!r}).read())}}"
    text = write_problem(tmp_path / "problem", {}, body)
    result = evaluate(tmp_path / "problem", text, source, confined)
    assert (result.error, result.output and result.output["metrics"]) == (None, {"said": 41.0})


@pytest.mark.parametrize("status", [0, 1])
def test_an_output_that_a_program_does_not_write_is_not_there_afterwards(
    confined, tmp_path, status
):
    body = (
        f"assert subprocess.run([sys.executable, path, 'said.txt']).returncode == {status}\n"
        "    return {'num_left': sum(map(os.path.exists, ['out.json', 'said.txt']))}"
    )
    text = write_problem(tmp_path / "problem", {}, body)
    source = f"NAME = 'out.json'\nraise SystemExit({status})\n"
    result = evaluate(tmp_path / "problem", text, source, confined)
    assert (result.error, result.output["metrics"]) == (None, {"num_left": 0.0})


@pytest.mark.parametrize("name", ["answers.txt", "evaluator.py", "helper.py", "added.txt"])
def test_a_program_writes_no_other_file_beside_the_evaluator(confined, tmp_path, name):
    words = [] if name == "added.txt" else [name]  # which the evaluator does not name
    body = (
        f"said = subprocess.run([sys.executable, path, *{words}])\n"
        "    forged = [each for each in os.listdir() if open(each).read() == 'forged']\n"
        "    return {'failed': said.returncode, 'num_forged': len(forged)}"
    )
    text = write_problem(tmp_path / "problem", {}, body)
    source = f"open({name!r}, 'w').write('forged')\n"
    result = evaluate(tmp_path / "problem", text, source, confined)
    assert (result.error, result.output["metrics"]) == (None, {"failed": 1.0, "num_forged": 0.0})


def test_an_empty_folder_is_there_and_a_program_writes_to_it(confined, tmp_path):
    body = (
        "subprocess.run([sys.executable, path], check=True)\n"
        "    folders = sorted(each.name for each in os.scandir() if each.is_dir())\n"
        "    return {'said': float(open('kept/inner/x').read()), 'folders': repr(folders)}"
    )
    text = write_problem(tmp_path / "problem", {}, body)
    for name in ("kept/inner", ".hidden", "data"):
        (tmp_path / "problem" / name).mkdir(parents=True)
    (tmp_path / "problem" / "kept" / ".gitkeep").write_text("")
    (tmp_path / "problem" / "data" / "unnamed.txt").write_text("")
    source = "open('kept/inner/x', 'w').write('41')\n"
    result = evaluate(tmp_path / "problem", text, source, confined)
    assert (result.error, result.output["metrics"]) == (
        None,
        {"said": 41.0, "folders": "['kept']"},
    )


UNREAD = "r, w = os.pipe(); os.close(r); sys.stdout = open(w, 'w')"


@pytest.mark.parametrize(
    ("leaving", "status"),
    [
        ("os.execvp('no-program', ['no-program'])", 1),
        ("sys.exit(3)", 3),
        ("sys.exit(2**40 + 3)", 3),
        (f"{UNREAD}; print('x'); return {{'combined_score': 1.0}}", 0),
        (f"{UNREAD}; print('x'); sys.exit(3)", 3),
        ("sys.exit('no reason')", 1),
        ("return {'combined_score': 1.0}", 0),
    ],
)
def test_a_fork_that_leaves_the_evaluators_code_ends_and_answers_nothing(
    confined, folder, leaving, status
):
    text = (
        "import os, sys\n"
        "def evaluate(path):\n"
        "    if not (number := os.fork()):\n"
        f"        {leaving}\n"
        "    return {'status': os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])}\n"
    )
    result = evaluate(folder, text, "x = 1\n", confined)
    assert (result.error, result.output["metrics"]) == (None, {"status": float(status)})


@pytest.mark.parametrize("plan", [{}, {"environment": None}, {"environment": {}}])
def test_a_python_that_cannot_confine_what_it_starts_does_not_start(monkeypatch, tmp_path, plan):
    monkeypatch.chdir(tmp_path)
    site = confine_in_commands(code_of(*CHILDREN), plan)
    command = [sys.executable, "-c", "print('started')"]
    done = subprocess.run(command, env={"PYTHONPATH": site}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "sandbox: what is started cannot be confined: " in done.stderr
