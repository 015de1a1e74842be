"""Builds and programs that reach for what they may not have, or take more than is theirs."""

import os
import re
import socket
from itertools import pairwise

import pytest
from needed_programs import needs
from sandbox_runs import AMPLE, LAYERS, becomes_true, running

from costada.evaluators.sandbox.commands import Commands, run_commands
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits

pytestmark = pytest.mark.process

needs_gcc = needs("gcc")
C = Commands(build="gcc -O1 {program} -o {binary}", run="{binary}", file_name="start.c")
BUILT = Commands(build="python3 {program}", run="python3 -c 'print(1)'", file_name="build.py")
RUN = Commands(run="python3 {program}", file_name="candidate.py")
SMALL = Limits(wall_seconds=60, memory_mb=64, scratch_mb=8, result_bytes=10_000)
STEALING = """
import os, socket, sys
def tries(attempt):
    try: attempt()
    except OSError as error: return type(error).__name__
    return "DONE"
print(tries(lambda: open({canary!r}).read()), tries(lambda: os.listdir({folder!r})),
      tries(lambda: open({folder!r} + "/new", "w")), tries(lambda: os.chmod({canary!r}, 0o777)),
      tries(lambda: socket.create_connection(("127.0.0.1", {port}), 1)),
      tries(lambda: open("/proc/1/environ").read()), sorted(os.environ), file=sys.stderr)
sys.exit({status})
"""


@pytest.fixture
def canary(tmp_path):
    path = tmp_path / "canary.h"
    path.write_text("CANARY CANARY")
    path.chmod(0o600)
    return path


def run(source, commands, layer, limits=AMPLE):
    return run_commands(source, commands, [{}], limits, layer)[0]


@needs_gcc
@pytest.mark.parametrize(
    "source", ['#include "{}"', '__asm__(".incbin \\"{}\\"");\nint main() {{ return 0; }}']
)
def test_a_build_reads_no_file_of_the_user(source, confined, canary):
    result = run(source.format(canary), C, confined)
    assert result.is_unbuilt
    assert "CANARY CANARY" not in result.error
    signs = ("No such file", "Permission denied", "file not found")
    assert any(sign in result.error for sign in signs)


@pytest.mark.parametrize("commands", [BUILT, RUN], ids=["build", "run"])
def test_neither_build_nor_program_reaches_files_or_network(commands, confined, canary):
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = STEALING.format(
            canary=str(canary), folder=str(canary.parent), port=server.getsockname()[1], status=1
        )
        result = run(source, commands, confined)
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    said = result.error if commands is BUILT else result.output["stderr"]
    words = said.replace("the build failed: exit status 1\n", "").split("[")[0].split()
    assert (len(words), "DONE" in words[:3] + words[4:]) == (6, False)
    assert "KEY" not in said.split("[")[1]
    assert os.listdir(canary.parent) == [canary.name]
    assert canary.stat().st_mode & 0o777 == 0o600


CLOSING = """
import os
for path in ("..", ".", "/tmp", "/dev/full", "/proc/meminfo"):
    try: os.chmod(path, 0)
    except OSError: pass
"""


def test_no_program_changes_modes_outside_of_its_folder(confined):
    places = ("/tmp", "/dev/full", "/proc/meminfo")
    before = [os.stat(path).st_mode for path in places]
    results = run_commands(CLOSING, RUN, [{}, {}], AMPLE, confined)
    assert [os.stat(path).st_mode for path in places] == before
    assert [result.error for result in results] == [None, None]
    assert run("print(1)", RUN, confined).output["stdout"] == "1\n"


def test_links_that_a_build_leaves_lead_nowhere(confined, canary):
    source = (
        "import os\n"
        f"for name in ('.build/program', 'link'): os.symlink({str(canary)!r}, name)\n"
        f"os.symlink({str(canary.parent)!r}, 'folder')\n"
        "os.symlink('.', 'loop')"
    )
    commands = Commands(build="python3 {program}", run="{binary}", file_name="build.py")
    result = run(source, commands, confined)
    reason = ".build/program is not a program that can be executed here"
    assert result.error == f"FileNotFoundError: {reason}"
    assert canary.stat().st_mode & 0o777 == 0o600
    assert canary.read_text() == "CANARY CANARY"
    assert os.listdir(canary.parent) == [canary.name]


@needs_gcc
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "char a[1 << 28] = {1};\nint main() { return a[5]; }",
            "its files took more than 8 MB",
        ),
        (
            "#define A 1,1,1,1,1,1,1,1,1,1\n"
            + "".join(f"#define {n} {','.join([m] * 10)}\n" for m, n in pairwise("ABCDEFGH"))
            + "int a[] = {H};\nint main() { return 0; }",
            "it (ran out of memory, the limit is|held more than) 64 MB",
        ),
        ('#include "start.c"', "exit status 1"),
    ],
    ids=["huge", "macros", "recursion"],
)
def test_a_compiler_bomb_ends_at_a_limit_that_is_named(source, expected, confined):
    result = run(source, C, confined, SMALL)
    assert re.match(f"the build failed: {expected}", result.error)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("while True: pass", "timeout: it exceeded 2 s"),
        (
            "import subprocess, time\n"
            "for _ in range(70): subprocess.Popen(['sleep', '600'])\n"
            "time.sleep(600)",
            "it started processes; at most 64 further processes are allowed",
        ),
        (
            "import contextlib, time\n"
            "for n in range(10000):\n"
            "    with contextlib.suppress(OSError): open(str(n), 'w').close()\n"
            "time.sleep(600)",
            "it had more than 4096 files and folders",
        ),
        (
            "open('a', 'wb').write(bytes(2 ** 24))",
            "its files took more than 8 MB",
        ),
        ("a = bytearray(2 ** 30)", "it ran out of memory, the limit is 256 MB"),
    ],
    ids=["endless", "processes", "files", "bytes", "memory"],
)
def test_a_build_that_takes_too_much_is_stopped(source, expected, layer):
    seconds = 2 if "timeout" in expected else 60
    limits = Limits(wall_seconds=seconds, memory_mb=256, scratch_mb=8)
    result = run(source, BUILT, layer, limits)
    assert result.is_unbuilt
    # A write that fails does not say whether size or number was the reason.
    reason = result.error.splitlines()[0].removesuffix(", or were too many")
    assert reason == f"the build failed: {expected}"


@pytest.mark.parametrize("commands", [BUILT, RUN], ids=["build", "run"])
def test_what_is_forked_ends_with_the_command(commands, layer):
    seconds = f"61{os.getpid()}{'1' if commands is BUILT else '2'}"
    source = (
        "import subprocess\n"
        f"subprocess.Popen(['sleep', '{seconds}'], start_new_session=True)\n"
        "print('begun')"
    )
    result = run(source, commands, layer, Limits(wall_seconds=60, processes=4))
    assert (result.error, result.output["exit_code"]) == (None, 0)
    assert becomes_true(lambda: not running(f"sleep\0{seconds}\0"), 20)


def test_a_program_starts_no_processes(confined):
    source = "import os\nprint(os.fork())"
    result = run(source, RUN, confined)
    assert result.output["exit_code"] == 1
    assert "PermissionError" in result.log


@needs_gcc
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('for (;;) puts("a lot of text");', "the program wrote more than 10000 bytes"),
        (
            "static char a[1 << 20]; for (;;) write(2, a, sizeof a);",
            "the program printed more than 64 MB",
        ),
        (
            "char *a = malloc(1 << 30); if (!a) { perror(0); abort(); } a[1 << 29] = 1;",
            "the program ran out of memory, the limit is 64 MB",
        ),
        (
            "char *a = mmap(0, 1L << 32, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN"
            " | MAP_NORESERVE, -1, 0);"
            " for (long i = 0; i < 1L << 28; i += 4096) a[i] = 1; pause();",
            "the program held more than 64 MB of memory",
        ),
        (
            'FILE *f = fopen("a", "w"); for (int i = 0; i < 1 << 20; i++) fputs("a few bytes", f);',
            "the program's files took more than 8 MB",
        ),
        ('kill(getppid(), SIGKILL); kill(1, SIGKILL); kill(-1, SIGKILL); puts("on");', None),
    ],
    ids=["output", "log", "memory", "hidden", "files", "signals"],
)
def test_a_program_that_takes_too_much_is_stopped(body, expected, confined):
    headers = ["signal", "stdio", "stdlib", "unistd", "sys/mman"]
    begin = "".join(f"#include <{name}.h>\n" for name in headers)
    source = f"#define _GNU_SOURCE\n{begin}int main() {{ {body} return 0; }}"
    build = Limits(wall_seconds=60, memory_mb=64, scratch_mb=8, result_bytes=10_000)
    result = run(source, C, confined, build)
    assert (result.error or "").removesuffix(", or were too many") == (expected or "")
    if expected is None:
        assert result.output["stdout"] == "on\n"


def test_nothing_of_a_candidate_is_left_for_the_next(confined):
    first = (
        "import os\n"
        "os.makedirs('a/b/c', 0o700); open('a/b/c/d', 'w').write('CANARY')\n"
        "os.symlink('/', 'root')\n"
        "open('/tmp/left', 'w') if os.access('/tmp', os.W_OK) else None"
    )
    assert run(first, RUN, confined).error is None
    listing = "import os\nprint(sorted(os.listdir()), os.path.exists('/tmp/left'))"
    assert run(listing, RUN, confined).output["stdout"] == "['.build', 'candidate.py'] False\n"


def test_in_the_weakest_layer_the_limits_hold_too():
    source = "print('x' * 20_000)"
    assert run(source, RUN, Layer.PROCESS, SMALL).error == "the program wrote more than 10000 bytes"


@pytest.mark.parametrize(
    "deed",
    ["os.rename(here, here + 'x')", "os.rename(here, here + 'x'); os.symlink('/etc', here)"],
    ids=["moved", "replaced"],
)
def test_a_build_that_moves_its_folder_fails_and_harms_no_other(deed):
    result = run(f"import os\nhere = os.getcwd()\n{deed}", BUILT, Layer.PROCESS)
    assert "the working folder is gone: the program moved" in result.error
    assert run("", BUILT, Layer.PROCESS).output["stdout"] == "1\n"


CACHING = """
import os
open("run.py", "w").write('''
import os
print(sorted(os.listdir()), open("run.py").read().count("CHEAT"), os.readlink("other"))
open("cache", "w").write("x")
os.makedirs("deep/er", exist_ok=True)
open("run.py", "a").write("# CHEAT")
open("../built/run.py", "a").write("# CHEAT") if os.access("../built", os.W_OK) else None
''')
os.symlink("run.py", "other")
"""


def test_a_program_hands_nothing_to_its_next_call_after_a_build(confined):
    commands = Commands(
        build="python3 {program}", run="python3 {folder}/run.py", file_name="build.py"
    )
    results = run_commands(CACHING, commands, [{}] * 3, AMPLE, confined)
    expected = "['.build', 'build.py', 'other', 'run.py'] 3 run.py\n"
    assert [result.error or result.output["stdout"] for result in results] == [expected] * 3


@pytest.mark.parametrize("layer", LAYERS, indirect=True)
def test_a_program_without_a_build_hands_nothing_to_its_next_call(layer):
    source = (
        "import os\nprint(sorted(os.listdir()), os.path.getsize('candidate.py') > 200)\n"
        "open('cache', 'w').write('x')\nopen('candidate.py', 'a').write('#' * 300)"
    )
    results = run_commands(source, RUN, [{}] * 3, AMPLE, layer)
    expected = "['.build', 'candidate.py'] False\n"
    assert [result.error or result.output["stdout"] for result in results] == [expected] * 3


@pytest.mark.parametrize("layer", LAYERS, indirect=True)
def test_a_build_leaves_names_and_times_to_each_call(layer):
    source = (
        "import os\nopen('a', 'w').write('x' * 9)\nos.link('a', 'b')\nos.makedirs('c/d')\n"
        "time = os.stat('a').st_mtime_ns\nopen('c/d/e', 'w').write(str(time))"
    )
    show = (
        "python3 -c \"import os; s = os.stat('b'); open('a', 'a').write('y');"
        " print(s.st_size, str(s.st_mtime_ns) == open('c/d/e').read(), s.st_nlink)\""
    )
    commands = Commands(build="python3 {program}", run=show, file_name="build.py")
    results = run_commands(source, commands, [{}] * 2, AMPLE, layer)
    outputs = [result.error or result.output["stdout"] for result in results]
    assert outputs == ["9 True 2\n"] * 2


def test_a_build_that_leaves_too_much_is_refused_by_name(confined):
    source = "for n in range(20): open(str(n), 'wb').truncate(1 << 20)"
    result = run(source, BUILT, confined, SMALL)
    assert "the build left more than 8 MB of files" in result.error
