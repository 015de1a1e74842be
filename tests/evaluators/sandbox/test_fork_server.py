"""The process that candidates are forked from: what it knows, and what happens when it is lost."""

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest
from sandbox_runs import (
    NO_NAMESPACES,
    ONE,
    PATIENCE_SECONDS,
    SCRATCH,
    WITHOUT_NAMESPACES,
    becomes_true,
    descendants,
    has_ended,
    has_namespaces,
    output_of,
    run,
    server_of,
)
from waiting import check_in_time

from costada.evaluators.sandbox.execution import GRACE_SECONDS
from costada.evaluators.sandbox.inside.process_tree import num_threads
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits

pytestmark = pytest.mark.process

MAX_PAGES = 600
"""A worker takes most of its time to copy pages that it writes to: some 3 microseconds for each."""

LOST = "the sandbox process ended while the program ran: "
SEARCH = """
import re
MARK = bytes(reversed(b'6172-REKRAM'))
def parts():
    for line in open('/proc/self/maps'):
        begin, end, rights = re.match(r'([0-9a-f]+)-([0-9a-f]+) (\\S+)', line).groups()
        if rights[0] == 'r' and '[v' not in line: yield int(begin, 16), int(end, 16)
def f():
    found = 0
    own = id(MARK)
    with open('/proc/self/mem', 'rb', 0) as memory:
        for begin, end in parts():
            memory.seek(begin)
            try: data = memory.read(end - begin)
            except OSError: continue
            found += data.count(MARK) - (begin <= own < end)
            del data
    return found
"""
TRACES = {
    "source": "x = 'MARKER-2716'\ny = x\ndef f(): pass",
    "answer": "def f(): return {'MARKER-2716': ['MARKER-2716'] * 9}",
    "log": "def f():\n    for _ in range(99): print('MARKER-2716')",
    "error": "def f(): raise ValueError('MARKER-2716')",
    "files": "def f():\n    for n in range(99): open(f'MARKER-2716-{n}', 'w').write('MARKER-2716')",
    "folders and name": (
        "import ctypes, os, time\n"
        "def f():\n"
        "    for n in range(30): os.makedirs(f'MARKER-2716-{n}/MARKER-2716')\n"
        "    ctypes.CDLL(None).prctl(15, b'MARKER-2716', 0, 0, 0)\n"
        "    time.sleep(0.7)"
    ),
}


@pytest.mark.skipif(sys.platform != "linux", reason="a process sees its memory in /proc")
@pytest.mark.parametrize("source", TRACES.values(), ids=TRACES.keys())
def test_a_later_candidate_inherits_no_trace_of_an_earlier_one(source):
    slot = run(SCRATCH, Layer.PROCESS).output
    for _ in range(2):
        run(source, Layer.PROCESS)
    assert run(SEARCH, Layer.PROCESS).output == 0
    assert run(SCRATCH, Layer.PROCESS).output == slot


def test_the_search_finds_what_is_there():
    keep = "import ctypes\nkept = [ctypes.create_string_buffer(MARK) for _ in range(5)]"
    assert run(f"{SEARCH}\n{keep}", Layer.PROCESS).output >= 5


def test_candidates_do_not_change_what_the_next_one_finds(layer):
    spoil = (
        "import builtins, json, os, sys\nimport numpy as np\n"
        "def f():\n"
        "    builtins.len = json.loads = np.zeros = os.getcwd = None\n"
        "    sys.path.clear()\n"
        "    sys.modules['math'] = 7\n"
        "    os.environ['SPOILED'] = '1'\n"
        "    os.umask(0o777)"
    )
    run(spoil, layer)
    source = (
        "import json, math, os\nimport numpy as np\n"
        "def f():\n"
        "    open('new', 'w').write('x')\n"
        "    return [len(json.loads('[1]')), math.sqrt(4), np.zeros(2), 'SPOILED' in os.environ,"
        " os.stat('new').st_mode & 0o700]"
    )
    length, root, zeros, is_spoiled, mode = run(source, layer).output
    assert (length, root, zeros.tolist(), is_spoiled, mode) == (1, 2.0, [0, 0], False, 0o600)


def test_a_process_that_a_candidate_forks_draws_numbers_of_its_own(layer):
    source = (
        "import os, random\n"
        "def f():\n"
        "    first, (reading, writing) = random.random(), os.pipe()\n"
        "    if os.fork() == 0:\n"
        "        os.write(writing, repr(random.random()).encode())\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "    return [first, random.random(), float(os.read(reading, 99))]"
    )
    limits = Limits(wall_seconds=60, processes=1)
    (first, second, forked), again = (run(source, layer, limits).output for _ in range(2))
    assert [first, second] == again[:2] == [0.8444218515250481, 0.7579544029403025]
    assert forked not in (second, again[2])


def test_few_pages_of_its_memory_are_copied_for_a_candidate(layer):
    source = "import resource\ndef f(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt"
    assert run(source, layer).output < MAX_PAGES


def test_neither_it_nor_the_trusted_process_can_be_read(layer, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-CANARY-1")
    source = (
        "import os\n"
        "def reads(path):\n"
        "    try: return bool(open(path, 'rb').read(1))\n"
        "    except OSError: return False\n"
        "def f():\n"
        "    above, names = os.getppid(), ('environ', 'maps', 'mem')\n"
        f"    trusted = [f'/proc/{os.getpid()}/{{name}}' for name in ('environ', 'maps', 'fd/0')]\n"
        "    return [reads(path) for path in trusted + [f'/proc/{above}/{n}' for n in names]]"
    )
    assert run(source, layer).output == [False] * 6


def test_a_candidate_that_kills_it_fails_alone(tmp_path):
    source = (
        "import os, subprocess, time\n"
        "def f():\n"
        "    print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)\n"
        "    print(os.getpid())\n"
        "    os.kill(os.getppid(), 9)\n"
        "    time.sleep(600)"
    )
    text = (
        f"{WITHOUT_NAMESPACES}"
        "from sandbox_runs import becomes_true, descendants, has_ended\n"
        "chosen_layer(Layer.PROCESS)\n"
        "def one_slot(): return len(descendants(os.getpid())) == len(SLOT)\n"
        "SLOT = ('supervisor', 'server', 'process for the next candidate')\n"
        "assert becomes_true(one_slot)\n"
        f"result = run({source!r}, Layer.PROCESS, Limits(wall_seconds=60, processes=8))\n"
        f"assert result.error.startswith({LOST!r}), result\n"
        "assert result.is_sandbox_fault\n"
        "assert result.seconds < 30\n"
        "assert [has_ended(int(word)) for word in result.log.split()] == [True, True]\n"
        "assert becomes_true(one_slot)\n"
        f"print(run({ONE!r}, Layer.PROCESS).output)"
    )
    assert output_of(text, tmp_path) == "1"


def test_a_candidate_with_a_pid_namespace_cannot_signal_what_is_above_it():
    if not has_namespaces():
        pytest.skip(NO_NAMESPACES)
    source = (
        "import os, signal\n"
        "def f():\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    for number in (9, 19): os.kill(1, number)\n"
        "    return [os.getppid(), *sorted(int(n) for n in os.listdir('/proc') if n.isdigit())]"
    )
    output = run(source, Layer.PROCESS).output
    assert output[:2] == [1, 1]
    assert len(output) == 3


@pytest.mark.parametrize("processes", [0, 4])
def test_a_confined_candidate_cannot_signal_it(confined, processes):
    source = (
        "import os\n"
        "def signals(number, signal):\n"
        "    try: os.kill(number, signal)\n"
        "    except (PermissionError, ProcessLookupError): return False\n"
        "    return True\n"
        "def f(): return [signals(n, s) for n in (os.getppid(), 1, -1) for s in (0, 9, 19)]"
    )
    output = run(source, confined, Limits(wall_seconds=60, processes=processes)).output
    assert output[:6] == [False] * 6


def test_a_kill_from_outside_while_it_is_idle_costs_nothing():
    scratch = run(SCRATCH, Layer.PROCESS).output
    server = server_of(scratch)
    os.kill(server, signal.SIGKILL)
    assert has_ended(server)
    result = run(SCRATCH, Layer.PROCESS)
    assert result.error is None
    assert result.output != scratch


def test_a_kill_from_outside_during_a_run_fails_it_with_a_reason():
    server = server_of(run(SCRATCH, Layer.PROCESS).output)
    source = (
        "import threading, time\n"
        "def f():\n"
        "    threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "    time.sleep(60)"
    )
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(run, source, Layer.PROCESS)
        assert becomes_true(lambda: [num_threads(pid) for pid in descendants(server)] == [2], 20)
        [candidate] = descendants(server)
        os.kill(server, signal.SIGKILL)
        result = future.result(PATIENCE_SECONDS)
    assert result.error.startswith(LOST)
    assert result.is_sandbox_fault
    assert has_ended(candidate)
    assert run(ONE, Layer.PROCESS).output == 1


def test_slots_that_are_stopped_are_given_up_and_replaced_and_no_late_answer_counts(tmp_path):
    def check(seconds):
        note = tmp_path / f"scratch-{seconds}"
        wait = (
            "import os, time\n"
            f"open({str(note)!r}, 'a').write(os.getcwd() + '\\n')\n"
            "def f(): time.sleep({}); return 7"
        )
        short, short_call = Limits(seconds), Limits(60, call_seconds=seconds)
        with ThreadPoolExecutor(2) as pool:
            asked = [
                pool.submit(run, wait.format(60), Layer.PROCESS, short),
                pool.submit(run, wait.format(seconds + 0.5), Layer.PROCESS, short_call),
            ]
            assert becomes_true(lambda: note.exists() and len(note.read_text().splitlines()) == 2)
            for scratch in note.read_text().splitlines():
                os.kill(server_of(scratch), signal.SIGSTOP)
        hung, late = (each.result() for each in asked)
        assert hung.error == f"timeout: the program exceeded {seconds:g} s"
        assert seconds + GRACE_SECONDS <= hung.seconds < 60
        assert (late.output, late.error) == (None, f"timeout: the call exceeded {seconds:g} s")
        assert (hung.is_sandbox_fault, late.is_sandbox_fault) == (True, True)
        assert run(ONE, Layer.PROCESS).output == 1

    check_in_time(check, 1.5, 6, 20)


def test_a_slot_that_was_stopped_while_idle_does_not_block_for_long():
    server = server_of(run(SCRATCH, Layer.PROCESS).output)
    sleep(0.2)  # so that it has removed what the candidate left
    os.kill(server, signal.SIGSTOP)
    result = run(ONE, Layer.PROCESS, Limits(wall_seconds=0.3))
    assert result.error is None or result.error.startswith("timeout: ")
    assert has_ended(server)
    assert run(ONE, Layer.PROCESS).output == 1
