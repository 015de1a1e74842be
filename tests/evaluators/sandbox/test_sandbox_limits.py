"""The limits of a run hold, and passing one is reported by its name."""

import json
import math
import os
from threading import Event, Thread

import pytest
from sandbox_runs import (
    CALL,
    ONE,
    WITHOUT_NAMESPACES,
    becomes_true,
    descendants,
    output_of,
    run,
)
from waiting import check_in_time

from costada.evaluators.sandbox.inside import kernel, process_starts, process_tree
from costada.evaluators.sandbox.layer_choice import described_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot import SLOTS

pytestmark = pytest.mark.process

SMALL_SCRATCH = Limits(wall_seconds=30, scratch_mb=10)
TOO_LARGE_FILES = "the program's files took more than 10 MB"


def test_the_defaults_are_those_of_an_ordinary_benchmark():
    limits = Limits(wall_seconds=360)
    assert (limits.memory_mb, limits.log_bytes) == (2048, 65536)
    assert (limits.source_bytes, limits.result_bytes) == (2**20, 64 * 2**20)


@pytest.mark.parametrize("name", ["wall_seconds", "call_seconds"])
@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf, True, "1"])
def test_a_time_must_be_a_positive_number(name, seconds):
    with pytest.raises(ValueError, match=rf"{name} is .*; expected a positive number"):
        Limits(**{name: seconds})


@pytest.mark.parametrize(
    "name", ["memory_mb", "scratch_mb", "threads", "log_bytes", "source_bytes", "result_bytes"]
)
def test_a_size_must_be_positive_and_no_more_than_the_system_takes(name):
    with pytest.raises(ValueError, match=f"{name} is 0; expected an integer of at least 1"):
        Limits(**{name: 0})
    with pytest.raises(ValueError, match=f"{name} is .*; expected at most {2**40}"):
        Limits(**{name: 2**40 + 1})


def test_a_number_of_processes_may_be_zero_and_not_less():
    assert Limits(processes=0).processes == 0
    with pytest.raises(ValueError, match="processes is -1; expected an integer of at least 0"):
        Limits(processes=-1)


def test_a_program_over_the_wall_limit_is_stopped(layer):
    source = "import time\nprint('begun')\ndef f(): time.sleep(600)"

    def check(seconds):
        result = run(source, layer, Limits(wall_seconds=seconds))
        reason = f"timeout: the program exceeded {seconds:g} s"
        assert (result.error, result.log) == (reason, "begun\n")
        assert seconds <= result.seconds < 60

    check_in_time(check, 0.5, 3, 12)


HANGS = {
    "ignoring signals": (
        "import signal\nfor n in range(1, 32):\n"
        "    if n not in (9, 19): signal.signal(n, signal.SIG_IGN)\nwhile True: pass"
    ),
    "stopped": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "without a look at signals": "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
}


@pytest.mark.parametrize("source", HANGS.values(), ids=HANGS.keys())
def test_the_wall_limit_covers_loading(source):
    assert run(source, Layer.PROCESS, Limits(wall_seconds=0.3)).error.startswith("timeout: ")


def test_endless_printing_is_stopped(layer):
    source = "def f():\n    while True: print('x' * 1_000_000)"
    assert run(source, layer).error == "the program printed more than 64 MB"


def test_the_log_is_cut_at_its_limit(layer):
    result = run("def f(): print('x' * 10_000)", layer, Limits(wall_seconds=60, log_bytes=100))
    assert (result.error, result.log) == (None, "x" * 100)


def test_a_source_over_the_limit_or_that_no_file_can_hold_is_not_run():
    result = run("x" * 200, Layer.PROCESS, Limits(wall_seconds=60, source_bytes=100))
    assert result.error == "the source has 200 bytes; expected at most 100"
    result = run("x = '\ud800'", Layer.PROCESS)
    assert result.error == "the program holds half of a surrogate pair, which no file can hold"


@pytest.mark.parametrize("result", ["np.zeros(1000)", "'x' * 5000", "[0] * 5000"])
def test_an_answer_over_the_limit_is_refused(layer, result):
    source = f"import numpy as np\ndef f(): return {result}"
    limits = Limits(wall_seconds=60, result_bytes=4000)
    assert run(source, layer, limits).error == "the program returned more than 4000 bytes"


def test_an_answer_of_the_largest_size_is_accepted(layer):
    source = "import numpy as np\ndef f(): return np.zeros(500)"
    assert run(source, layer, Limits(wall_seconds=60, result_bytes=4000)).error is None


def test_more_threads_than_allowed_are_stopped(layer):
    source = (
        "import threading, time\n"
        "def f():\n"
        "    threading.stack_size(32768)\n"
        "    while True: threading.Thread(target=time.sleep, args=(60,)).start()"
    )
    error = run(source, layer, Limits(wall_seconds=30, threads=8)).error
    assert error == "the program had more than 8 threads"


NINE = "bytes(9 * 2**20)"
DELETED = f"fd = os.open('x', os.O_CREAT | os.O_RDWR); os.write(fd, {NINE}); os.unlink('x')"
MAP = f"{DELETED}; libc.mmap(None, ctypes.c_size_t({{}}), 1, 1, fd, ctypes.c_long(0)); os.close(fd)"
FILES = {
    "one file": f"open('x', 'wb').write({NINE}); open('y', 'wb').write({NINE})",
    "files that are deleted and open": f"for n in range(3): {DELETED}",
    "a deep tree": (
        "for _ in range(25): os.mkdir('d' * 200); os.chdir('d' * 200)\n"
        f"    for n in range(3): open(f'{{n}}', 'wb').write({NINE})"
    ),
    "a folder that cannot be listed": (
        f"os.mkdir('d', 0o300)\n    for n in range(3): open(f'd/{{n}}', 'wb').write({NINE})"
    ),
    "a file that is deleted and mapped": (
        f"for n in range(3): {DELETED}; kept.append(mmap.mmap(fd, 9 * 2**20)); os.close(fd)"
    ),
    "files that only a thread has open": (
        "def hoard():\n"
        f"        for n in range(3): {DELETED}\n"
        "        time.sleep(20)\n"
        "    threading.Thread(target=hoard).start()\n"
        "    libc.syscall(60, 0)"
    ),
    "a file that is deleted, mapped in part and not open": (
        f"for n in range(3): {MAP.format(4096)}"
    ),
    "a file that is deleted and mapped but not open": f"for n in range(3): {MAP.format(9 * 2**20)}",
}
UNSEEN = (
    "the program mapped shared memory, or a deleted file that it no longer has open: their size"
    " cannot be checked"
)
HOARD = f"""
{WITHOUT_NAMESPACES}
import json
from concurrent.futures import ThreadPoolExecutor
from costada.evaluators.sandbox.layer_choice import described_layer
def hoard(source): return run(source, layer, Limits(wall_seconds=30, scratch_mb=10)).error
try:
    chosen_layer(layer)
    with ThreadPoolExecutor(2) as pool:
        print(json.dumps([described_layer(layer), *pool.map(hoard, sources)]))
except ValueError as reason:
    print(json.dumps(str(reason)))
"""


@pytest.mark.parametrize("name", ["process", "landlock"])
def test_more_in_files_than_allowed_is_seen_where_no_file_system_bounds_them(name, tmp_path):
    opening = f"{CALL}import mmap\nkept = []\ndef f():\n    "
    sources = [f"{opening}{write}\n    time.sleep(20)" for write in FILES.values()]
    text = f"layer, sources = Layer({name!r}), {sources!r}\n{HOARD}"
    answer = json.loads(output_of(text, tmp_path))
    if isinstance(answer, str):
        pytest.skip(answer)
    layer, *errors = answer
    assert layer == f"{name} (no file system of its own: the size of files is only watched)"
    expected = {kind: UNSEEN if "not open" in kind else TOO_LARGE_FILES for kind in FILES}
    assert dict(zip(FILES, errors, strict=True)) == expected


FILL = """
import os
from threading import Event, Thread

def f():
    held = []
    try:
        while True:
            held.append(os.open(f"{len(held)}", os.O_CREAT | os.O_RDWR))
            os.write(held[-1], bytes(2**20))
            os.unlink(f"{len(held) - 1}")
    except OSError as full:
        return [len(held), str(full)]
"""


@pytest.fixture
def bounding(layer):
    """Each layer that has a file system of its own here."""
    if described_layer(layer) != layer.value:
        pytest.skip(described_layer(layer))
    return layer


def test_a_file_system_bounds_the_files_of_a_candidate_and_is_empty_for_the_next(bounding):
    for _ in range(2):
        held, full = run(FILL, bounding, SMALL_SCRATCH).output
        assert 9 <= held <= 12
        assert full == "[Errno 28] No space left on device"


def test_a_program_that_fills_its_files_is_shown_the_limit(bounding):
    source = "def f():\n    for n in range(9): open(f'{n}', 'wb').write(bytes(2**21))"
    assert run(source, bounding, SMALL_SCRATCH).error.splitlines()[:2] == [
        "OSError: [Errno 28] No space left on device",
        "(the limit of the program's files is 10 MB)",
    ]


def test_more_files_than_can_be_watched_are_stopped(layer):
    write = "for n in range(6_000): open(f'{n}', 'w').close()"
    source = f"import time\ndef f():\n    {write}\n    time.sleep(20)"
    error = run(source, layer, SMALL_SCRATCH).error
    assert error == "the program had more than 4096 files and folders"


def test_a_small_file_that_is_mapped_and_deleted_is_no_fault(layer):
    source = (
        "import mmap, os, time\n"
        "def f():\n"
        f"    {DELETED}\n"
        "    kept, shared = mmap.mmap(fd, 9 * 2**20), mmap.mmap(-1, 64 * 2**20, flags=34)\n"
        "    time.sleep(1)"
    )
    assert run(source, layer, SMALL_SCRATCH).error is None


def test_space_cannot_be_taken_without_writing(confined):
    source = (
        f"{CALL}\n"
        "def f():\n"
        "    fd = os.open('x', os.O_CREAT | os.O_RDWR)\n"
        "    kept = libc.fallocate(fd, 1, ctypes.c_long(0), ctypes.c_long(2**28))\n"
        "    os.posix_fallocate(fd, 0, 2**20)\n"
        "    return [kept, os.fstat(fd).st_size, os.fstat(fd).st_blocks * 512]"
    )
    assert run(source, confined, SMALL_SCRATCH).output == [-1, 2**20, 2**20]


def test_arrays_can_be_written_and_read(layer):
    source = (
        "import numpy as np\n"
        "def f():\n"
        "    a = np.arange(100_000.0)\n"
        "    a.tofile('t'); np.save('s.npy', a); np.savez('z.npz', a=a)\n"
        "    read = np.fromfile('t'), np.load('s.npy'), np.load('z.npz')['a']\n"
        "    return [bool((a == b).all()) for b in read]"
    )
    assert run(source, layer, SMALL_SCRATCH).output == [True] * 3


def test_a_limit_too_small_for_the_source_is_out_of_memory(layer):
    limits = Limits(wall_seconds=30, memory_mb=16, source_bytes=2**25)
    error = run(f"{ONE}\n#" + "x" * 20_000_000, layer, limits).error
    assert error.splitlines()[0] == "MemoryError: out of memory, the limit is 16 MB"


def test_a_file_over_the_limit_cannot_be_written(layer):
    source = "def f(): open('x', 'wb').write(bytes(11 * 2**20))"
    assert run(source, layer, SMALL_SCRATCH).error.startswith("OSError: [Errno 27] File too large")


def test_files_cannot_be_hidden_by_sending_them(confined):
    source = (
        "import array, os, socket, time\n"
        "def f():\n"
        "    a, b = socket.socketpair()\n"
        "    for _ in range(3):\n"
        f"        {DELETED}\n"
        "        fds = array.array('i', [fd])\n"
        "        a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])\n"
        "        os.close(fd)\n"
        "    time.sleep(20)"
    )
    assert run(source, confined, SMALL_SCRATCH).error is not None


HIDING = {
    "a table of descriptors of a thread's own, by close_range": (
        f"call(436, 250, 250, 2)\n    for n in range(5): {DELETED}"
    ),
    "a table of descriptors of a thread's own, by unshare": "call(272, 0x400)",
    "a thread with descriptors of its own": "call(56, 0x50900, 0, 0, 0, 0)",
    "a thread whose flags cannot be seen": "call(435, 0, 0)",
    "memory that stays when it is unmapped": (
        "libc.mmap.restype, size = ctypes.c_void_p, ctypes.c_size_t(2**24)\n"
        "    for n in range(6):\n"
        "        at = libc.mmap(None, size, 3, 0x21, -1, ctypes.c_long(0))\n"
        "        if at in (None, 2**64 - 1): raise OSError(ctypes.get_errno(), 'refused')\n"
        "        ctypes.memset(at, 1, 2**24)\n"
        "        libc.munmap(ctypes.c_void_p(at + 4096), ctypes.c_size_t(2**24 - 4096))"
    ),
    "shared memory of System V": "call(29, 0, 2**24, 0o600)",
    "a file in memory": "call(319, b'x', 0)",
    "a secret file in memory": "call(447, 0)",
    "large buffers of sockets": "socket.socketpair()[0].setsockopt(1, socket.SO_SNDBUF, 2**30)",
}


@pytest.mark.parametrize("action", HIDING.values(), ids=HIDING.keys())
@pytest.mark.parametrize("processes", [0, 4])
def test_nothing_can_be_held_out_of_sight(layer, action, processes):
    source = f"{CALL}\ndef f():\n    {action}\n    return 'held'"
    result = run(source, layer, Limits(wall_seconds=20, scratch_mb=10, processes=processes))
    assert result.output is None
    assert result.error.startswith(("PermissionError", "OSError: [Errno 38]"))


def test_processor_time_ends_even_if_the_clock_does_not_stop_it(layer):
    source = "import resource\ndef f(): return list(resource.getrlimit(resource.RLIMIT_CPU))"
    soft, hard = run(source, layer, Limits(wall_seconds=7)).output
    assert 7 < soft <= hard <= 1000


FORKS = {
    "children": "for _ in range(20): os.fork() or (time.sleep(20), os._exit(0))",
    "orphans": (
        "for _ in range(20):\n"
        "        if not os.fork():\n"
        "            os.fork() or time.sleep(20)\n"
        "            os._exit(0)\n"
        "        os.wait()"
    ),
    "children of a thread": (
        "fork = lambda: os.fork() or (time.sleep(20), os._exit(0))\n"
        "    fork_all = lambda: [fork() for _ in range(20)] + [time.sleep(20)]\n"
        "    threading.Thread(target=fork_all).start()"
    ),
}


@pytest.mark.parametrize("fork", FORKS.values(), ids=FORKS.keys())
def test_more_processes_than_allowed_are_stopped(layer, fork):
    SLOTS.close()  # so that only the processes of one slot are counted
    source = f"import os, threading, time\ndef f():\n    {fork}\n    time.sleep(20)"
    error = run(source, layer, Limits(wall_seconds=20, processes=4)).error
    assert error == "the program started processes; at most 4 further processes are allowed"
    assert becomes_true(lambda: len(descendants(os.getpid())) < 12)


def has_no_listener():
    """Whether the kernel offers no listener, or another one is installed around this process."""
    kernel.drop_privileges()
    starts = process_starts.start_filter()
    return int(starts is None or process_starts.install(starts) is None)


@pytest.fixture
def listener():
    if not kernel.IS_LINUX or process_tree.run_in_fork(has_no_listener):
        pytest.skip("no listener for the starts of processes here (before Linux 5.19?)")


def test_a_program_that_does_nothing_but_fork_fills_no_table_of_processes(layer, listener):
    SLOTS.close()  # so that only the processes of one slot are counted
    source = "import os, time\ndef f():\n    for _ in range(13): os.fork()\n    time.sleep(20)"
    peak, has_ended = 0, Event()

    def count():
        nonlocal peak
        while not has_ended.is_set():
            peak = max(peak, len(descendants(os.getpid())))

    counting = Thread(target=count, daemon=True)
    counting.start()
    try:
        error = run(source, layer, Limits(wall_seconds=20, processes=9)).error
    finally:
        has_ended.set()
    counting.join()
    assert error == "the program started processes; at most 9 further processes are allowed"
    # Of 8,192; root's wait for their start, those of others come up to a bound.
    assert peak < (process_starts.SPARE_TASKS + 2048 if os.getuid() else 100)


@pytest.mark.skipif(os.getuid() == 0, reason="the kernel does not limit how many tasks root has")
def test_the_kernel_bounds_the_tasks_of_a_program_that_may_start_processes(layer):
    source = "import resource\ndef f(): return list(resource.getrlimit(resource.RLIMIT_NPROC))"
    soft, hard = run(source, layer, Limits(processes=4)).output
    assert process_starts.SPARE_TASKS < soft == hard < process_starts.SPARE_TASKS + 10_000


def test_no_signal_has_the_start_of_a_process_fail(layer):
    source = (
        "import os, signal\n"
        "def f():\n"
        "    signal.signal(signal.SIGCHLD, lambda *_: None)\n"
        "    for _ in range(60):\n"
        "        pairs = [os.fork() or os._exit(0), os.fork() or os._exit(0)]\n"
        "        for pid in pairs: os.waitpid(pid, 0)\n"
        "    return True"
    )
    assert run(source, layer, Limits(wall_seconds=60, processes=9)).output is True


def test_a_thousand_processes_are_gone_before_the_wall_limit():
    tree = "[ $1 -gt 9 ] && exec sleep 60\nsh s $(($1+1)) &\nsh s $(($1+1)) &\nwait\n"
    source = (
        "import subprocess\n"
        "def f():\n"
        f"    open('s', 'w').write({tree!r})\n"
        "    subprocess.run(['sh', 's', '0'], env={'PATH': '/usr/bin:/bin'})"
    )
    result = run(source, Layer.PROCESS, Limits(wall_seconds=40, processes=4))
    assert "at most 4 further processes" in result.error
    assert (result.seconds < 40, result.is_sandbox_fault) == (True, False)


def test_processes_work_where_they_are_allowed(layer):
    source = (
        "import subprocess, sys\n"
        "def f():\n"
        "    run = lambda *words: subprocess.run(words, capture_output=True, text=True).stdout\n"
        "    return [run('echo', 'hello'), run(sys.executable, '-c', 'print(6 * 7)')]"
    )
    assert run(source, layer, Limits(wall_seconds=30, processes=4)).output == ["hello\n", "42\n"]


def test_memory_that_the_processes_of_a_program_hold_is_counted_together(layer):
    source = (
        "import os, time\n"
        "def f():\n"
        "    for _ in range(2): os.fork()\n"
        "    held = b'x' * (60 * 2**20)\n"
        "    time.sleep(30)"
    )
    error = run(source, layer, Limits(wall_seconds=20, memory_mb=150, processes=3)).error
    assert error == "the program held more than 150 MB of memory"


def test_memory_that_processes_share_is_counted_once(layer):
    source = (
        "import os, time\n"
        "def f():\n"
        "    held = bytearray(b'x' * (80 * 2**20))\n"
        "    for _ in range(3):\n"
        "        if os.fork() == 0:\n"
        "            held.count(b'y')\n"
        "            time.sleep(0.6)\n"
        "            os._exit(0)\n"
        "    for _ in range(3): os.wait()\n"
        "    return len(held)"
    )
    result = run(source, layer, Limits(wall_seconds=60, memory_mb=200, processes=3))
    assert (result.output, result.error) == (80 * 2**20, None)


def test_memory_of_a_process_that_waits_for_another_to_start_is_counted_once():
    source = (
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None)\n"
        "def f():\n"
        "    held = bytearray(100 * 2**20)\n"
        "    for place in range(0, len(held), 4096): held[place] = 1\n"
        "    stack = ctypes.create_string_buffer(2**16)\n"
        "    top = ctypes.c_void_p(ctypes.addressof(stack) + 2**16 - 64)\n"
        "    vm, vfork, signal = 0x100, 0x4000, 17\n"
        "    begun = libc.clone(libc.sleep, top, vm | vfork | signal, ctypes.c_void_p(1))\n"
        "    return [begun > 0, len(held)]"
    )
    result = run(source, Layer.PROCESS, Limits(wall_seconds=60, memory_mb=150, processes=3))
    assert (result.output, result.error) == ([True, 100 * 2**20], None)
