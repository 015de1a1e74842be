"""Candidates that are clean copies of a repository: what they can change, and what scores them."""

import json
import os
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
from made_repositories import FILES, SOLVER, make_repository, problem_of, write
from needed_programs import how_to_install, require
from sandbox_runs import HERE, LAYERS, WITHOUT_NAMESPACES, output_of, why_absent

from costada.evaluators.folders import load_folder
from costada.evaluators.problem import check_problem, confine
from costada.evaluators.sandbox.candidate_runs import run_in_copy
from costada.evaluators.sandbox.codec import LENGTH_BYTES, encode
from costada.evaluators.sandbox.inside.scratch_folder import MAX_FILES
from costada.evaluators.sandbox.interpreter import own_interpreter
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot import Slot
from costada.evaluators.sandbox.slot_kind import SlotKind
from costada.values.candidate import Program
from costada.values.evaluation import EVALUATOR_FAULT, FAULTS, NOT_SCORED, SANDBOX_FAULT

pytestmark = pytest.mark.process

EXAMPLE = HERE.parents[2] / "examples" / "problems" / "repository"
FIRST_FIT = """from packing.bins import Bin


def pack(sizes):
    bins = []
    for index in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        found = next((each for each in bins if each.fits(sizes[index])), None)
        if found is None:
            found = Bin()
            bins.append(found)
        found.add(index, sizes[index])
    return [each.items for each in bins]
"""
LEAVES_TRACES = """
import os, shutil, sys
def answer():
    if sorted(os.listdir(".")) != ["bench.py", "data", "src"] or os.listdir(os.environ["HOME"]):
        return 9
    with open("data/numbers.txt", "a") as file:
        file.write("4")
    os.unlink("bench.py")
    os.mkdir("bench.py")
    os.rename("data/numbers.txt", "data/other.txt")
    shutil.rmtree("src")
    for place in (".", "..", os.environ["HOME"], "data"):
        open(place + "/new", "w").close()
    os.symlink("/", "data/link")
    return 0.25
"""


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path / "repository")


@pytest.fixture(scope="module", params=[*LAYERS, Layer.NONE])
def any_layer(request):
    if reason := why_absent(request.param):
        pytest.skip(reason)
    return request.param


def state_of(folder: Path) -> dict:
    """Every file, folder and link below a folder with its content, permissions and time."""
    found = {}
    for path in folder.rglob("*"):
        about = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes()
        found[path] = (content, about.st_mode, about.st_nlink, about.st_mtime_ns)
    return found


def solver(text: str) -> Program:
    return Program.of({"src/solver.py": text})


def test_the_example_scores_its_start_and_a_better_program(tmp_path, any_layer):
    folder = tmp_path / "problem"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    make_repository(folder / "project", {".gitignore": "__pycache__\n"})
    problem = confine(load_folder(folder), sandbox=any_layer)
    start = check_problem(problem)
    assert (start.metrics["bins"], start.metrics["least"]) == (668, 517)
    assert start.score == 517 / 668
    better = problem.evaluate_program(
        Program.of({**problem.start, "src/packing/greedy.py": FIRST_FIT}), "k"
    )
    assert better.metrics["bins"] < 600, better.error
    files = {"src/packing/__init__.py": FIRST_FIT.replace("packing.bins", "packing.box")}
    files["src/packing/box.py"] = problem.start["src/packing/bins.py"]
    added_and_deleted = problem.evaluate_program(Program.of(files), "k")
    assert added_and_deleted.score == better.score


def test_a_candidate_changes_neither_the_repository_nor_the_next_copy(
    repository, tmp_path, any_layer
):
    problem = confine(problem_of(repository, tmp_path / "problem"), sandbox=any_layer)
    assert problem.evaluate_program(problem.start, "k").score == 0.5
    before = state_of(repository), state_of(tmp_path / "problem")
    for _ in range(2):
        judged = problem.evaluate_program(solver(LEAVES_TRACES), "k")
        assert judged.score == 0.25, judged.error
    assert problem.evaluate_program(problem.start, "k").score == 0.5
    assert (state_of(repository), state_of(tmp_path / "problem")) == before


ESCAPES = """
import ctypes, os, subprocess
ORIGINAL, MADE = {original!r}, {made!r}
libc = ctypes.CDLL(None)
def tried(*steps):
    for step in steps:
        try:
            step()
        except (OSError, ValueError, subprocess.SubprocessError):
            pass
def spoil(path):
    with open(path, "a") as file:
        file.write("spoiled")
def answer():
    here = os.getcwd()
    for there in (ORIGINAL, MADE, f"/proc/1/root{{ORIGINAL}}", f"/proc/self/root{{MADE}}"):
        name = f"{{there}}/bench.py"
        tried(
            lambda: spoil(name),
            lambda: os.unlink(name),
            lambda: os.rename(name, "stolen"),
            lambda: os.link(name, "hard") or spoil("hard"),
            lambda: os.symlink(name, "soft") or spoil("soft"),
            lambda: os.symlink(there, "folder") or spoil("folder/new"),
            lambda: os.truncate(name, 0),
            lambda: os.chmod(name, 0o777),
            lambda: os.utime(name, (1, 1)),
            lambda: print(open(f"{{there}}/secret.txt").read()),
        )
        for link in ("soft", "folder", "hard", "stolen"):
            tried(lambda: os.unlink(link))
    libc.umount2(here.encode(), 2)
    libc.umount2(os.path.dirname(here).encode(), 2)
    libc.unshare(0x10020000)
    libc.mount(b"none", here.encode(), b"tmpfs", 0, None)
    tried(lambda: subprocess.run(["unshare", "-Urm", "umount", "-l", os.path.dirname(here)]))
    for place in ("bench.py", "../upper/x", "../inner/x", "../../upper/x"):
        tried(lambda: spoil(place))
    return 0.75
"""


@pytest.mark.parametrize("layer", LAYERS[1:])
def test_no_path_leads_from_a_copy_to_the_repository(layer, repository, tmp_path):
    if reason := why_absent(layer):
        pytest.skip(reason)
    write(repository, {".gitignore": "secret.txt\n", "secret.txt": "THE SECRET"})
    problem = confine(problem_of(repository, tmp_path / "problem"), sandbox=layer)
    made = problem.evaluate.base.original(tmp_path / "problem").path
    before = state_of(repository), state_of(tmp_path / "problem")
    program = ESCAPES.format(original=str(repository), made=f"{made}/repository")
    judged = problem.evaluate_program(solver(program), "k")
    assert judged.score == 0.75, judged.error
    assert "SECRET" not in str(judged)
    assert (state_of(repository), state_of(tmp_path / "problem")) == before
    assert problem.evaluate_program(problem.start, "k").score == 0.5


def test_links_lead_to_the_copy_and_never_to_the_repository(repository, tmp_path, any_layer):
    (repository / "near").symlink_to(repository / "data")
    (repository / "away").symlink_to("/etc")
    (repository / "above").symlink_to("../problem/problem.md")
    problem = confine(problem_of(repository, tmp_path / "problem"), sandbox=any_layer)
    assert sorted(problem.notes) == [
        "above is left out of the copies: it leads to ../problem/problem.md",
        "away is left out of the copies: it leads to /etc",
    ]
    judged = problem.evaluate_program(
        solver(
            "import os\n"
            "def answer():\n"
            "    open('near/numbers.txt', 'w').close()\n"
            "    assert os.path.getsize('data/numbers.txt') == 0\n"
            "    assert not os.path.lexists('away') and not os.path.lexists('above')\n"
            "    return 0.75\n"
        ),
        "k",
    )
    assert judged.score == 0.75, judged.error
    assert (repository / "data" / "numbers.txt").read_text() == FILES["data/numbers.txt"]


def test_a_program_with_a_file_below_a_link_is_rejected(repository, tmp_path):
    (repository / "src" / "link").symlink_to("../data")
    problem = problem_of(repository, tmp_path / "problem")
    for path in ("src/link/x.py", "bench.py", "data"):
        judged = problem.evaluate_program(Program.of({"src/solver.py": SOLVER, path: ""}), "k")
        assert "a file where none can be" in judged.error


MANY = MAX_FILES + 100
COPYING = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from made_repositories import problem_of
from costada.evaluators.problem import confine
from costada.evaluators.sandbox.interpreter import own_interpreter
from costada.evaluators.sandbox.layers import Layer
from costada.values.candidate import Program
TEXT = '''
import os, time
def answer():
    number = sum(len(names) for _, _, names in os.walk("many"))
    links = {{os.stat(f"many/0/{{n}}").st_nlink for n in os.listdir("many/0")}}
    open("many/0/0", "w").write("x")
    os.unlink("many/0/10")
    time.sleep(1)  # the number of files is looked at twice a second
    return number if links == {{1}} else 0
'''
problem = confine(problem_of(Path({repository!r}), Path({folder!r})), sandbox=Layer.LANDLOCK)
judged = problem.evaluate_program(Program.of({{"src/solver.py": TEXT}}), "k")
print(judged.score, judged.error)
"""


def test_copies_are_made_file_by_file_where_nothing_can_be_mounted(repository, tmp_path):
    if reason := why_absent(Layer.LANDLOCK):
        pytest.skip(reason)
    for number in range(MANY):
        place = repository / "many" / str(number % 10)
        place.mkdir(parents=True, exist_ok=True)
        (place / str(number)).touch()
    script = COPYING.format(
        paths=[str(HERE.parents[1])],
        repository=str(repository),
        folder=str(tmp_path / "problem"),
    )
    output = output_of(f"{WITHOUT_NAMESPACES}{script}", tmp_path)
    assert output == f"{MANY}.0 None"
    assert (repository / "many" / "0" / "0").read_text() == ""
    assert (repository / "many" / "0" / "10").exists()


def test_an_interpreter_that_is_used_once_gets_a_copy_too(repository, tmp_path):
    original = problem_of(repository, tmp_path / "problem").evaluate.base.original(tmp_path)
    kind = SlotKind(Layer.PROCESS, (), is_single_use=True, original=original)
    slot = Slot(kind)
    try:
        found = run_in_copy(
            solver(LEAVES_TRACES),
            original,
            {"command": ["python", "bench.py"]},
            Limits(60, processes=8),
            slots=OneSlot(slot),
        )
    finally:
        slot.close()
    assert found.output["metrics"] == {"combined_score": 0.25}, found


class OneSlot:
    """A pool of one slot."""

    def __init__(self, slot):
        self.slot = slot

    def acquire(self, kind):
        return nullcontext(self.slot)


def judged_by(command: str, repository: Path, tmp_path: Path, settings: str = "", program=SOLVER):
    problem = problem_of(repository, tmp_path / "problem", command, settings)
    return problem.evaluate_program(solver(program), "k")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            "sh -c 'echo noted; echo broken >&2; exit 3'",
            "command failed (exit status 3)\nnoted\nbroken",
        ),
        ("sh -c 'kill -9 $$'", "command failed (SIGKILL)"),
        ("true", "the command printed nothing; expected a number"),
        ("python -c 'print({})'", "the command reports no combined_score"),
        ("sh -c 'true --export-json made.json'", "made.json: No such file or directory; expected"),
        ("sh -c 'echo x > made.json; : --export-json made.json'", "made.json holds no score"),
        (
            "sh -c 'dd if=/dev/zero of=x bs=1M count=9'",
            "(the limit of the program's files is 8 MB)",
        ),
        ("sh -c 'for n in 1 2 3; do head -c 4M /dev/zero > $n; done; ls x'", "files is 8 MB"),
        (
            "sleep 30",
            "timeout: the evaluation exceeded 2 s (timeout in problem.toml, or --timeout)",
        ),
        ("python -c 'bytearray(900 * 2**20)'", "MemoryError"),
    ],
)
def test_a_command_without_a_score_is_the_candidates_failure(command, reason, repository, tmp_path):
    seconds = 2 if reason.startswith("timeout") else 30
    settings = f"scratch_mb = 8\ntimeout = {seconds}\nmemory_mb = 600"
    judged = judged_by(command, repository, tmp_path, settings)
    assert reason in judged.error
    assert EVALUATOR_FAULT not in judged.artifacts
    assert (NOT_SCORED in judged.artifacts) is reason.startswith("timeout")


FORGES = """
import os
def answer():
    above = os.getppid()
    for number in os.listdir(f"/proc/{{above}}/fd"):
        path = f"/proc/{{above}}/fd/{{number}}"
        if int(number) > 2 and os.readlink(path).startswith("pipe:"):
            os.write(os.open(path, os.O_WRONLY), {message!r})
    os.kill(above, 9)
"""


@pytest.mark.parametrize(
    "report", [{}, {"name": 1, "status": 0.5, "stdout": None, "stderr": []}, [1.0]]
)
def test_a_report_that_a_candidate_writes_in_the_weakest_layer_is_its_failure(
    report, repository, tmp_path
):
    problem = confine(problem_of(repository, tmp_path / "problem"), sandbox=Layer.PROCESS)
    message = encode({"output": report})
    framed = len(message).to_bytes(LENGTH_BYTES, "big") + message
    judged = problem.evaluate_program(solver(FORGES.format(message=framed)), "k")
    assert judged.error == "malformed answer: it is not a report of a command"


def test_a_candidate_cannot_mark_its_verdict_as_that_of_a_broken_sandbox(repository, tmp_path):
    texts = dict.fromkeys(FAULTS, "mine") | {"combined_score": 0.75}
    program = f"import json\ndef answer():\n    return json.dumps({texts!r})\n"
    judged = judged_by("python bench.py", repository, tmp_path, program=program)
    assert (judged.score, {*FAULTS} & judged.artifacts.keys()) == (0.75, set())
    assert judged.artifacts[f"reported_{SANDBOX_FAULT}"] == "mine"


def test_a_command_may_end_by_a_signal_without_a_name(repository, tmp_path):
    judged = judged_by("sh -c 'kill -40 $$'", repository, tmp_path)
    assert judged.error == "command failed (signal 40)"


def test_a_program_that_is_not_there_is_the_evaluators_fault(repository, tmp_path):
    judged = judged_by("no_such_program x", repository, tmp_path)
    assert "cannot be run in the sandbox" in judged.artifacts[EVALUATOR_FAULT]


FORGES_THE_BENCHMARK = """
import os
about = os.stat("bench.py")
with open("bench.py", "w") as file:
    file.write("print(9)\\n".ljust(about.st_size))
os.utime("bench.py", ns=(about.st_atime_ns, about.st_mtime_ns))
open("new.txt", "w").close()
"""


@pytest.mark.parametrize("name", ["build", "test"])
def test_what_scores_a_program_cannot_be_changed_before(name, repository, tmp_path, any_layer):
    settings = f"sandbox = '{any_layer}'\n{name} = 'python -c \"import solver\"'\n"
    problem = problem_of(repository, tmp_path / "problem", settings=settings)
    assert problem.evaluate(problem.start).objective == 0.5
    forged = {"src/solver.py": f"{SOLVER}{FORGES_THE_BENCHMARK}"}
    found = problem.evaluate(Program.of(forged))
    assert found.error == (
        f"{name} changed bench.py; expected it to leave what the command names as it is"
    )
    own = {"src/solver.py": f"{SOLVER}open(__file__, 'a').close()\nopen('new.txt', 'w').close()\n"}
    assert problem.evaluate(Program.of(own)).objective == 0.5


def test_what_fails_to_build_is_shown_from_its_first_line(repository, tmp_path):
    settings = "build = '''python -c 'import solver, sys; sys.exit(solver.BUILT)' '''"
    program = "BUILT = 'first fault' + 99 * chr(10) + 'last fault'\ndef answer(): return 1\n"
    judged = judged_by("python bench.py", repository, tmp_path, settings, program)
    assert judged.error.startswith("build failed (exit status 1)\nfirst fault")
    assert "last fault" not in judged.error
    judged = judged_by("python bench.py", repository, tmp_path, settings, f"BUILT = 0\n{SOLVER}")
    assert judged.score == 0.5


@pytest.mark.parametrize("layer", LAYERS[1:])
@pytest.mark.parametrize(
    ("path", "text", "build", "command"),
    [
        ("src/a.c", '#include <stdio.h>\nint main() { puts("0.5"); }', "gcc src/a.c -o a", "./a"),
        ("src/a.js", "console.log(0.5)", "", "node src/a.js"),
    ],
)
def test_a_repository_may_be_in_any_language(
    path, text, build, command, layer, repository, tmp_path
):
    compiler = (build or command).split()[0]
    if not (shutil.which(compiler) or "").startswith("/usr/"):
        pytest.skip(how_to_install(compiler))
    if reason := why_absent(layer):
        pytest.skip(reason)
    write(repository, {path: text})
    settings = f"build = '{build}'" if build else ""
    problem = problem_of(repository, tmp_path / "problem", command, settings, "src/a.*")
    problem = confine(problem, sandbox=layer)
    judged = problem.evaluate_program(problem.start, "k")
    assert judged.score == 0.5, judged.error
    wrong = problem.evaluate_program(Program.of({path: "nonsense("}), "k")
    assert wrong.error.startswith("build failed" if build else "command failed")
    assert f"{path}:1" in wrong.error


def test_python_is_the_interpreter_that_runs_candidates(repository, tmp_path):
    code = 'import json, sys; print(json.dumps({"who": sys.executable, "combined_score": 1}))'
    judged = judged_by(f"python -c '{code}'", repository, tmp_path)
    assert judged.artifacts["who"] == own_interpreter().program


def test_files_of_the_copy_have_their_names_and_permissions(repository, tmp_path):
    write(repository, {"run": "#!/bin/sh\ncat src/score.py 'odd\nname'\n", "odd\nname": "0.5\n"})
    (repository / "run").chmod(0o755)
    problem = problem_of(repository, tmp_path / "problem", "./run")
    judged = problem.evaluate_program(Program.of({"src/score.py": "no score\n"}), "k")
    assert (judged.score, judged.artifacts["stdout"]) == (0.5, "no score\n0.5\n")


def test_a_path_of_the_sandbox_is_in_no_text(repository, tmp_path, any_layer):
    problem = confine(problem_of(repository, tmp_path / "problem"), sandbox=any_layer)
    judged = problem.evaluate_program(solver("def answer():\n    return 1 / 0\n"), "k")
    assert 'File "src/solver.py", line 2' in judged.error
    assert "costada-" not in str(judged)


def test_a_report_of_an_earlier_run_does_not_count(repository, tmp_path):
    write(repository, {"made.json": '{"combined_score": 9}'})
    judged = judged_by("sh -c ': --export-json made.json'", repository, tmp_path)
    assert "made.json: No such file" in judged.error


def test_pytest_benchmark_works_as_it_is(repository, tmp_path):
    pytest.importorskip("pytest_benchmark", reason="pip install pytest-benchmark")
    bench = (
        "from solver import answer\ndef test_it(benchmark):\n    assert benchmark(answer) == 0.5\n"
    )
    write(repository, {"test_speed.py": bench})
    options = "--benchmark-json=made.json --benchmark-max-time=0.01 -p no:cacheprovider"
    command = f"python -m pytest -q test_speed.py {options}"
    judged = judged_by(command, repository, tmp_path)
    assert judged.metrics["combined_score"] == 1 / judged.metrics["seconds"] > 0, judged.error
    wrong = judged_by(command, repository, tmp_path, program="def answer(): return 2\n")
    assert "command failed (exit status 1)" in wrong.error
    assert "assert 2 == 0.5" in wrong.error


def test_measured_times_are_seconds_or_their_reciprocal(repository, tmp_path):
    times = {"results": [{"command": "sleep 0.25", "median": 0.25}]}
    write(repository, {"recorded.json": json.dumps(times)})
    command = "sh -c 'cp recorded.json made.json; : --export-json made.json'"
    judged = judged_by(command, repository, tmp_path)
    assert (judged.score, judged.metrics["seconds"]) == (4.0, 0.25)
    settings = "direction = 'minimize'\nreference = 0.5"
    judged = judged_by(command, repository, tmp_path, settings)
    assert (judged.score, judged.objective) == (2.0, 0.25)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("", "1 / seconds (the command reports seconds)"),
        (
            "reference = 8",
            "(1 / seconds) divided by the reference 8 (the command reports seconds)",
        ),
        (
            "direction = 'minimize'\nreference = 0.5",
            "the reference 0.5 divided by seconds (the command reports seconds);"
            " lower seconds is better",
        ),
    ],
)
def test_check_says_how_a_measured_time_becomes_the_score(
    repository, tmp_path, invoke, settings, said
):
    times = {"results": [{"command": "sleep 0.25", "median": 0.25}]}
    write(repository, {"recorded.json": json.dumps(times)})
    command = "sh -c 'cp recorded.json made.json; : --export-json made.json'"
    problem_of(repository, tmp_path / "problem", command, settings)
    lines = invoke("check", tmp_path / "problem").stdout.splitlines()
    assert [line.split("  ")[-1].strip() for line in lines if "maximises" in line] == [said]


def test_hyperfine_works_as_it_is(repository, tmp_path):
    require("hyperfine")
    command = "hyperfine --runs 2 --export-json made.json 'python bench.py'"
    judged = judged_by(command, repository, tmp_path)
    assert judged.score == 1 / judged.metrics["seconds"] > 0, judged.error


def test_a_repository_that_changes_after_it_was_loaded_is_refused(repository, tmp_path):
    problem = problem_of(repository, tmp_path / "problem")
    (repository / "data" / "numbers.txt").write_text("4")
    with pytest.raises(ValueError, match="its files have changed since the problem was loaded"):
        problem.evaluate_program(problem.start, "k")
    assert (
        problem_of(repository, tmp_path / "problem").evaluate_program(problem.start, "k").score
        == 0.5
    )


def test_a_problem_folder_for_a_repository_is_written_by_one_command(repository, tmp_path, invoke):
    folder = tmp_path / "new"
    options = ["--from-repo", repository, "--edit", "src/*.py", "--score", "python bench.py"]
    assert invoke("init", folder, *options).exit_code == 0
    problem = load_folder(folder)
    assert (check_problem(problem).score, [*problem.start]) == (0.5, ["src/solver.py"])
    inside = repository / "problem"
    assert invoke("init", inside, *options).exit_code == 0
    assert 'repository = ".."' in (inside / "problem.toml").read_text()
    assert load_folder(inside).evaluate.base.digest == problem.evaluate.base.digest
    for wrong in (options[:4], options[:2], options[2:], [*options, "--from", "circle_packing"]):
        assert invoke("init", tmp_path / "other", *wrong).exit_code == 2
    assert not (tmp_path / "other").exists()


def test_a_score_command_without_its_program_is_refused_before_the_folder_is_made(
    repository, tmp_path, invoke
):
    folder, options = tmp_path / "new", ["--from-repo", repository, "--edit", "src/*.py"]
    refused = invoke("init", folder, *options, "--score", "nosuch x")
    assert (refused.exit_code, folder.exists()) == (2, False)
    assert "--score is 'nosuch x'; found no program 'nosuch' in " in refused.stderr
    for command in ("python -u nosuch.py x", "sh nosuch.sh"):
        refused = invoke("init", folder, *options, "--score", command)
        assert (refused.exit_code, folder.exists()) == (2, False)
        file = "nosuch.py" if "python" in command else "nosuch.sh"
        assert f"--score is {command!r}; found no file {file!r} in {repository}" in refused.stderr
    score = ("--score", "python bench.py")
    for words, said in (
        (("--score", "a | b"), "--score is 'a | b'; expected a command without '|'"),
        ((*score, "--test", "a | b"), "--test is 'a | b'; expected a command without '|'"),
        ((*score, "--focus", "src/x.py::y"), "--focus has 'src/x.py::y'; "),
    ):
        refused = invoke("init", folder, *options, *words)
        assert (refused.exit_code, folder.exists()) == (2, False)
        assert refused.stderr.startswith(f"costada: {said}")
    outside = invoke("init", folder, *options[:3], "../x", *score)
    assert outside.stderr.startswith("costada: --edit is ['../x']; expected patterns of relative")
    shell = invoke("init", tmp_path / "shell", *options, "--score", "sh -c 'cd src && sh ./run.sh'")
    assert shell.exit_code == 0
    made = invoke("init", folder, *options, "--score", "./built x")
    assert (made.exit_code, folder.exists()) == (0, True)
    assert "./built is missing: a build must make it" in made.stdout


def test_a_folder_of_a_repository_is_not_adopted_and_called_what_it_is(
    repository, tmp_path, invoke
):
    folder, score = tmp_path / "new", ["--score", "python bench.py"]
    invoke("init", folder, "--from-repo", repository, "--edit", "src/*.py", *score)
    refused = invoke("adopt", folder)
    assert refused.exit_code == 2
    assert f"a problem folder of CostAda for the repository {repository}, which" in refused.stderr
