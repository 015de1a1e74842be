"""Candidates in any language: built once, run for each call, and what comes of it."""

import os
import re
import resource
import sys
import time

import pytest
from needed_programs import needs
from sandbox_runs import AMPLE, LAYERS
from waiting import check_in_time

from costada.evaluators.sandbox.commands import Commands, run_commands
from costada.evaluators.sandbox.inside.scratch_folder import permit_executing
from costada.evaluators.sandbox.interpreter import Interpreter
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot_kind import SlotKind
from costada.values.candidate import Program

pytestmark = pytest.mark.process

needs_gcc = needs("gcc")
PYTHON = Commands(run="python3 {program}", file_name="candidate.py")
C = Commands(build="gcc -O1 {program} -o {binary}", run="{binary}", file_name="start.c")
DOUBLE = '#include <stdio.h>\nint main() { int n; scanf("%d", &n); printf("%d\\n", 2 * n); }'


def run_python(source, *calls, limits=AMPLE, layer=Layer.AUTO):
    return run_commands(source, PYTHON, calls or [{}], limits, layer)


def output_of(result):
    assert result.error is None
    return {name: result.output[name] for name in ("stdout", "stderr", "exit_code")}


@needs_gcc
@pytest.mark.parametrize("layer", LAYERS, indirect=True)
def test_a_program_is_built_and_run_for_each_call(layer):
    results = run_commands(DOUBLE, C, [{"stdin": "4"}, {"stdin": "-21"}], AMPLE, layer)
    assert [output_of(result)["stdout"] for result in results] == ["8\n", "-42\n"]
    assert all(0 < result.output["seconds"] < 10 for result in results)


@needs_gcc
def test_each_candidate_starts_in_an_empty_folder():
    listing = Commands(
        build="sh -c 'touch left && cp {program} {binary}'", run="ls -A", file_name="a"
    )
    for _ in range(2):
        [result] = run_commands("x", listing, [{}], AMPLE)
        assert output_of(result)["stdout"].split() == [".build", "a", "left"]


def test_stdin_arguments_and_the_exit_code_arrive_as_they_are():
    source = (
        "import sys\n"
        "text = sys.stdin.buffer.read()\n"
        "print(sys.argv[1:], len(text), text[-1:])\n"
        "print('to the log', file=sys.stderr)\n"
        "sys.exit(3)"
    )
    text = "é" * 300_000 + "\0"
    [one, two] = run_python(source, {"stdin": text, "arguments": ["$HOME", "a b", ""]}, {})
    assert output_of(one) == {
        "stdout": "['$HOME', 'a b', ''] 600001 b'\\x00'\n",
        "stderr": "to the log\n",
        "exit_code": 3,
    }
    assert (one.log, output_of(two)["stdout"]) == ("to the log\n", "[] 0 b''\n")


def test_the_time_is_that_of_the_program_alone():
    slow = "import time\ntime.sleep(0.4)"
    [result] = run_python(slow)
    assert 0.4 <= result.output["seconds"] < 20
    build = Commands(build="python3 -c 'import time; time.sleep(1)'", run="true", file_name="a")
    [result] = run_commands("", build, [{}], AMPLE)
    assert result.output["seconds"] + 1 <= result.seconds


def test_what_a_program_prints_can_pass_for_nothing_else():
    frame = "(8).to_bytes(8, 'big') + b'{\"a\": 1}' + bytes(8)"
    [result] = run_python(f"import sys\nsys.stdout.buffer.write({frame})")
    assert output_of(result)["stdout"] == '\0\0\0\0\0\0\0\x08{"a": 1}' + "\0" * 8


@needs_gcc
def test_an_error_of_the_build_is_the_failure_of_all_calls():
    source = "int main() {\n  return missing;\n}"
    results = run_commands(source, C, [{}, {}], AMPLE)
    assert [result.is_unbuilt for result in results] == [True, True]
    first, second = results[0].error.splitlines()[:3:2]
    assert first == "the build failed: exit status 1"
    assert second.startswith("start.c:2:10: error: ")
    assert "missing" in second
    assert results[0].error == results[1].error


@needs_gcc
def test_only_the_first_lines_of_a_build_are_shown():
    [result] = run_commands("\n".join(f"a{n} b;" for n in range(500)), C, [{}], AMPLE)
    lines = result.error.splitlines()
    assert lines[0] == "the build failed: exit status 1"
    assert len(lines) <= 43
    assert lines[-1] == "..."


@needs_gcc
def test_a_crash_is_a_failure_that_names_the_signal():
    [result] = run_commands("int main() { *(volatile int *)0 = 1; }", C, [{}], AMPLE)
    assert result.output is None
    assert result.error.startswith("the program was killed by SIGSEGV")


def test_a_program_that_is_too_slow_fails_alone():
    source = "import sys, time\nif sys.argv[1:]: time.sleep(600)\nprint(1)"

    def check(seconds):
        limits = Limits(wall_seconds=60, call_seconds=seconds)
        results = run_python(source, {"arguments": ["slow"]}, {}, limits=limits)
        assert results[0].error == f"timeout: the call exceeded {seconds:g} s"
        assert output_of(results[1])["stdout"] == "1\n"

    check_in_time(check, 1.5, 6, 20)


def test_the_time_of_all_calls_together_is_limited():
    began = time.monotonic()
    results = run_python("import time\ntime.sleep(600)", *[{}] * 3, limits=Limits(wall_seconds=1))
    assert [result.error for result in results] == ["timeout: the program exceeded 1 s"] * 3
    assert time.monotonic() - began < 30


def test_several_files_are_built_in_their_folder():
    commands = Commands(run="python3 {folder}/main.py", file_name="")
    files = {"main.py": "from parts.one import x\nprint(x, open('data/n').read())"}
    files |= {"parts/one.py": "x = 1", "data/n": "2"}
    [result] = run_commands(Program.of(files), commands, [{}], AMPLE)
    assert output_of(result)["stdout"] == "1 2\n"


def test_a_program_that_needs_processes_is_told_so():
    shell = Commands(run="sh {program}", file_name="a.sh")
    [result] = run_commands("echo $(ls)", shell, [{}], AMPLE, Layer.LANDLOCK)
    assert result.output["exit_code"] != 0
    assert result.log.endswith("touch files outside their working folder)")
    [result] = run_commands("echo $(ls)", shell, [{}], Limits(processes=2), Layer.LANDLOCK)
    assert output_of(result)["stdout"] == "a.sh\n"


@pytest.mark.skipif(os.getuid() == 0, reason="each process of root waits for its start")
def test_the_processes_of_a_shell_start_whatever_ends_meanwhile():
    shell = Commands(run="sh {program}", file_name="a.sh")
    pipes = "for i in $(seq 200); do true | true; done; echo done"
    [result] = run_commands(pipes, shell, [{}], Limits(processes=8), Layer.LANDLOCK)
    assert output_of(result) == {"stdout": "done\n", "stderr": "", "exit_code": 0}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("", "run is ''; expected a command"),
        ("a 'b", "No closing quotation"),
        ("{binry}", "unknown {binry}); braces that stand for themselves are written twice"),
        ("{program!r}", "unknown {program}"),
        ("awk '{'", "run is \"awk '{'\"; expected a command"),
    ],
)
def test_a_malformed_command_is_refused(command, expected):
    with pytest.raises(ValueError) as refusal:
        Commands(run=command, file_name="a").words("run", has_one_file=True)
    assert expected in str(refusal.value)


@pytest.mark.parametrize(
    ("command", "sign"),
    [
        ("python3 {program} | tail -1", "|"),
        ("cat {program} > out", ">"),
        ("cat < {program}", "<"),
        ("true && cat {program}", "&&"),
        ("false || true", "||"),
        ("true ; true", ";"),
        ("make; {binary}", "make;"),
        ("make 2>&1", "2>&1"),
        ("make 2>/dev/null", "2>/dev/null"),
        ("make &", "&"),
    ],
)
def test_signs_for_a_shell_are_refused(command, sign):
    for name, given in {"run": {"run": command}, "build": {"run": "a", "build": command}}.items():
        with pytest.raises(ValueError) as refusal:
            Commands(**given, file_name="a").words(name, has_one_file=True)
        expected = f"{name} is {command!r}; expected a command without {sign!r}, as no shell takes"
        assert str(refusal.value).startswith(expected)


def test_signs_for_a_shell_may_be_arguments_in_quotes():
    commands = Commands(run="sh -c 'a | b > c; d' '|' \"&&\" a=>b \\; x;y", file_name="a")
    words = ["sh", "-c", "a | b > c; d", "|", "&&", "a=>b", ";", "x;y"]
    assert commands.words("run", has_one_file=True) == words


def test_a_link_to_rustup_starts_the_compiler_of_its_stable_toolchain(tmp_path, monkeypatch):
    links, toolchains = tmp_path / "cargo" / "bin", tmp_path / "rustup" / "toolchains"
    for path in (
        links / "rustup",
        toolchains / "beta/bin/rustc",
        toolchains / "beta/bin/clippy",
        toolchains / "stable-x/bin/rustc",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\necho $0\n")
        path.chmod(0o755)
    for name in ("rustc", "clippy"):
        (links / name).symlink_to("rustup")
    monkeypatch.setenv("RUSTUP_HOME", str(tmp_path / "rustup"))
    monkeypatch.setenv("PATH", str(links), prepend=os.pathsep)
    commands = Commands(run="rustc {program}", file_name="a.rs")
    for readable, chosen in (([], "stable-x"), ([f"{toolchains}/b*"], "beta")):
        [result] = run_commands("", commands, [{}], AMPLE, readable=readable)
        assert output_of(result)["stdout"] == f"{toolchains}/{chosen}/bin/rustc\n"
    said = 'clippy is a link to rustup, which .* readable = \\["{toolchains}/beta"\\]'
    with pytest.raises(ValueError, match=said.format(toolchains=toolchains)):
        run_commands("", Commands(run="clippy", file_name="a.rs"), [{}], AMPLE)


def test_braces_written_twice_stand_for_themselves():
    commands = Commands(run="awk '{{print $1}}' {program}", file_name="a.txt")
    assert commands.words("run", has_one_file=True) == ["awk", "{print $1}", "a.txt"]
    with pytest.raises(ValueError, match=r"unknown \{program\}"):
        commands.words("run", has_one_file=False)


def test_a_program_that_is_not_installed_is_named():
    commands = Commands(run="no-such-program {program}", file_name="a")
    with pytest.raises(
        ValueError, match=r"run is .*; found no program 'no-such-program' in .*/bin"
    ):
        run_commands("", commands, [{}], AMPLE)


def test_a_folder_of_programs_is_looked_through_once_by_the_interpreter_of_the_system():
    places = Interpreter("/usr/bin/python3", (3, 11), ("/usr",), ()).program_paths
    assert places.count("/usr/bin") == 1


def test_each_folder_of_programs_is_named_once_in_what_is_said_of_a_missing_one(tmp_path):
    """An interpreter may lie in a folder of the system, and folders may be links to others."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "bin")
    python = Interpreter(sys.executable, (3, 11), (str(tmp_path), "/usr"), ())
    readable = (str(tmp_path / "link"), str(tmp_path / "bin"))
    kind = SlotKind(layer="process", preload=(), interpreter=python, readable=readable)
    commands = Commands(run="no-such-program {program}", file_name="a")
    with pytest.raises(ValueError, match="found no program") as refused:
        commands.check_programs(kind, has_one_file=True)
    [named] = re.findall(r"'no-such-program' in (.*)\. Install it", str(refused.value))
    places = named.split(", ")
    assert "/usr/bin" in places
    assert len({os.path.realpath(place) for place in places}) == len(places)


def test_programs_are_found_in_the_folders_that_are_readable(tmp_path):
    tool = tmp_path / "chain" / "bin" / "greet"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho hello $1\n")
    tool.chmod(0o755)
    commands = Commands(run="greet {program}", file_name="a.txt")
    for pattern in (tmp_path / "chain", tmp_path / "ch*"):
        [result] = run_commands("", commands, [{}], AMPLE, readable=[str(pattern)])
        assert output_of(result)["stdout"] == "hello a.txt\n"
    with pytest.raises(ValueError, match="found no program 'greet'"):
        run_commands("", commands, [{}], AMPLE)
    with pytest.raises(ValueError, match="readable has 'chain'; expected the absolute path"):
        run_commands("", commands, [{}], AMPLE, readable=["chain"])
    with pytest.raises(ValueError, match="expected the absolute path of a file or folder that is"):
        run_commands("", commands, [{}], AMPLE, readable=[str(tmp_path / "absent")])


def test_a_build_may_leave_more_folders_than_can_be_open_at_once(tmp_path):
    places = [*(tmp_path / str(number) for number in range(200)), tmp_path / ("deep/" * 200)]
    for place in places:
        place.mkdir(parents=True)
        (place / "program").touch(0o600)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    num_open = len(os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (num_open + 20, hard))
    try:
        assert permit_executing(str(tmp_path)) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert all(os.access(place / "program", os.X_OK) for place in places)
