"""The process for the next candidate: forked and confined before its program comes."""

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep

import pytest
from sandbox_runs import (
    AMPLE,
    ONE,
    PATIENCE_SECONDS,
    WITHOUT_NAMESPACES,
    becomes_true,
    descendants,
    has_ended,
    output_of,
    prepared_of,
    read_proc,
    run,
    servers_of,
    start_script,
)
from waiting import check_in_time

from costada.evaluators.sandbox.layers.protocol import THREAD_VARIABLES
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot import SHORT_SLOTS, SLOTS

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="a spawn server has an interpreter ready"
    ),
]
OWN = os.getpid()
ADDRESS_SPACE = "import resource\ndef f(): return resource.getrlimit(resource.RLIMIT_AS)[0]"
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture(autouse=True)
def no_slots_of_other_tests():
    """Processes that wait in slots of this process are those of one test."""
    for pool in (SLOTS, SHORT_SLOTS):
        pool.close()


@pytest.fixture
def waiting(layer):
    """The one process that waits, in the only slot."""
    run(ONE, layer)  # tries the layer first, if that is due
    SLOTS.close()
    run(ONE, layer)
    assert becomes_true(lambda: len(prepared_of(OWN)) == 1)
    return prepared_of(OWN)[0]


def test_the_next_program_runs_in_the_process_that_waits(waiting, layer):
    source = "import time\ndef f(): time.sleep(4)"
    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(run, source, layer)
        program = Path(f"/proc/{waiting}/cwd/candidate.py")
        assert becomes_true(lambda: os.path.exists(program))  # unreadable until it begins
        assert program.read_text() == source
        assert ended.result(PATIENCE_SECONDS).error is None
    assert has_ended(waiting)
    assert becomes_true(lambda: len(prepared_of(OWN)) == 1)


def test_at_most_one_process_waits_in_each_slot_and_none_once_they_are_closed(layer):
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(run, [ONE] * 12, [layer] * 12))
    assert becomes_true(lambda: len(prepared_of(OWN)) == len(servers_of(OWN)))
    found = prepared_of(OWN)
    SLOTS.close()
    assert all(has_ended(one) for one in found)


@pytest.mark.parametrize("pause", [0, 0.2])
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_killed_while_it_waits_costs_nothing(waiting, layer, sign, pause):
    os.kill(waiting, sign)
    assert has_ended(waiting)
    sleep(pause)
    result = run("import os\ndef f(): return os.getpid()", layer)
    assert result.error is None
    assert becomes_true(lambda: len(prepared_of(OWN)) == 1)


def test_a_program_with_other_limits_gets_these(waiting, layer):
    roomy, tight = (run(ADDRESS_SPACE, layer, Limits(memory_mb=mb)).output for mb in (1024, 256))
    assert roomy - tight == pytest.approx(768 * 2**20, abs=16 * 2**20)
    again = run(ADDRESS_SPACE, layer, Limits(memory_mb=256)).output
    assert again == pytest.approx(tight, abs=16 * 2**20)


def test_a_program_that_may_start_processes_follows_one_that_may_not(confined):
    source = "import subprocess\ndef f(): return subprocess.run(['true']).returncode"
    for _ in range(2):
        assert "PermissionError" in run(source, confined, AMPLE).error
        assert run(source, confined, Limits(processes=4)).output == 0


def test_the_time_in_which_it_waits_is_not_that_of_the_program(layer):
    source = "import time\ndef f():\n    time.sleep(0.3)\n    return time.process_time()"

    def check(seconds):
        limits = Limits(wall_seconds=seconds)
        run(source, layer, limits)
        sleep(seconds)
        begun = monotonic()
        result = run(source, layer, limits)
        took = monotonic() - begun
        assert result.error is None
        assert 0.3 <= result.seconds <= took

    check_in_time(check, 3, 12)


def test_nothing_is_computed_while_a_process_waits(waiting):
    def ticks():
        texts = [read_proc(one, "stat") for one in descendants(OWN)]
        words = [text.rpartition(")")[2].split() for text in texts]
        return sum(int(word) for line in words for word in line[11:15])

    def is_still():
        before = ticks()
        sleep(1.5)
        return ticks() - before <= 0.01 * CLOCK_TICKS

    sleep(0.2)
    assert becomes_true(is_still)  # at first, it removes what the last candidate left


def test_it_holds_its_three_pipes_and_no_secret(waiting):
    folder = f"/proc/{waiting}/fd"
    if not os.access(folder, os.R_OK | os.X_OK):
        pytest.skip("this process shows its descriptors to root only: run as root")

    def held():
        return {os.readlink(f"{folder}/{name}") for name in os.listdir(folder)}

    assert becomes_true(lambda: len(held()) == 4)
    assert "/dev/null" in held()
    assert sum(target.startswith("pipe:") for target in held()) == 3
    variables = Path(f"/proc/{waiting}/environ").read_bytes().split(b"\0")
    assert {variable.partition(b"=")[0] for variable in variables} <= {
        *(b"", b"HOME", b"TMPDIR", b"PYTHONHASHSEED", b"PWD"),
        *(name.encode() for name in THREAD_VARIABLES),
    }


def test_scipy_is_loaded_though_a_process_without_it_waits(waiting, layer):
    source = "import sys\ndef f(): return 'scipy.optimize' in sys.modules"
    assert run(f"# scipy\n{source}", layer).output is True


def test_it_ends_with_the_trusted_process_that_is_killed(layer, tmp_path):
    text = (
        "import sys\n"
        f"layer = chosen_layer(Layer({layer.value!r}))\n"
        f"run({ONE!r}, layer)\n"
        "from sandbox_runs import becomes_true, prepared_of\n"
        "print(becomes_true(lambda: prepared_of(os.getpid())), flush=True)\n"
        "sys.stdin.read()"
    )
    process = start_script(text, tmp_path)
    assert process.stdout.readline() == "True\n"
    below = descendants(process.pid)
    process.kill()
    process.communicate()
    assert all(has_ended(one) for one in below)
    assert becomes_true(lambda: not list(tmp_path.glob("costada-*")))


def test_no_program_can_read_or_change_it_even_without_namespaces(tmp_path):
    source = (
        "import ctypes, os\n"
        "def f():\n"
        "    done, libc = [], ctypes.CDLL(None)\n"
        "    for number in map(int, filter(str.isdigit, os.listdir('/proc'))):\n"
        "        if number not in NUMBERS: continue\n"
        "        for name, flags in (('environ', 0), ('maps', 0), ('mem', 2)):\n"
        "            try: done.append([number, os.open(f'/proc/{number}/{name}', flags)])\n"
        "            except PermissionError: pass\n"
        "        if libc.ptrace(16, number, 0, 0) == 0: done.append([number, 'traced'])\n"
        "    return done"
    )
    text = (
        f"{WITHOUT_NAMESPACES}from concurrent.futures import ThreadPoolExecutor\n"
        "from sandbox_runs import becomes_true, prepared_of\n"
        "chosen_layer(Layer.PROCESS)\n"
        "sleeping = 'import time\\ndef f(): time.sleep(0.5)'\n"
        "with ThreadPoolExecutor(2) as threads:\n"
        "    list(threads.map(run, [sleeping] * 2, [Layer.PROCESS] * 2))\n"
        "assert becomes_true(lambda: len(prepared_of(os.getpid())) == 2)\n"
        "numbers = prepared_of(os.getpid())\n"
        f"source = {source!r}.replace('NUMBERS', str(numbers))\n"
        "result = run(source, Layer.PROCESS)\n"
        "own = [number for number in numbers if not os.path.exists(f'/proc/{number}')]\n"
        "print(result.error, [each for each in result.output if each[0] not in own])"
    )
    assert output_of(text, tmp_path) == "None []"
