"""What a candidate cannot do behind Landlock and bubblewrap, and that it is told why."""

import os
import platform
import socket

import pytest
from sandbox_runs import POLICY, run

from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits

REFUSED = {
    "read a file": "open({path!r}).read()",
    "list a folder": "os.listdir({folder!r})",
    "write a file": "open({path!r} + '.new', 'w')",
    "truncate a file": "os.truncate({path!r}, 0)",
    "delete a file": "os.remove({path!r})",
    "rename a file": "os.rename({path!r}, {path!r} + '.new')",
    "make a folder": "os.mkdir({folder!r} + '/new')",
    "follow a link out": "os.symlink({path!r}, 'link'); open('link').read()",
    "read what the system tells": "open('/proc/self/environ').read()",
    "read the passwords": "open('/etc/passwd').read()",
    "open a socket": "socket.socket()",
    "open a local socket": "socket.socket(socket.AF_UNIX)",
    "open a datagram socket": "socket.socket(type=socket.SOCK_DGRAM)",
    "look up a host": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "fork": "os.fork()",
    "start a program": "os.execv('/bin/true', ['true'])",
    "start a process": "import subprocess; subprocess.run(['true'])",
    "signal another process": "os.kill({pid}, 0)",
    "signal every process": "os.kill(-1, 0)",
    "trace": "call(101, 0, 0, 0, 0)",
    "read another process": "call(310, {pid}, 0, 0, 0, 0, 0)",
    "a namespace": "call(272, 0x10000000)",
    "hidden memory": "os.memfd_create('x')",
    "shared memory": "open('/dev/shm/x', 'w')",
    "a device": "os.mknod('x', 0o60600, 0x800)",
    "a named pipe": "os.mkfifo('x')",
    "its own session": "os.setsid()",
    "a faster schedule": "os.nice(-5)",
}
CALL = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(*words):
    if libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text("CANARY")
    return path


@pytest.mark.parametrize("action", REFUSED.values(), ids=REFUSED.keys())
def test_it_is_refused_and_told(walled, secret, action):
    action = action.format(path=str(secret), folder=str(secret.parent), pid=os.getpid())
    result = run(f"{CALL}\ndef f():\n    {action}", walled)
    assert POLICY in result.error or "No such file" in result.error
    assert "CANARY" not in f"{result}"
    assert secret.read_text() == "CANARY"
    assert [path.name for path in secret.parent.iterdir()] == ["secret"]


@pytest.mark.parametrize(
    "action",
    [
        "os.link({path!r}, 'stolen'); open('stolen').read()",
        "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
    ],
)
def test_it_is_refused_in_words_of_the_system(walled, secret, action):
    result = run(f"{CALL}\ndef f():\n    {action.format(path=str(secret))}", walled)
    assert result.error is not None
    assert "CANARY" not in f"{result}"


@pytest.mark.parametrize("action", ["os.chmod(path, 0o777)", "os.utime(path, (0, 0))"])
def test_what_seems_to_succeed_changes_nothing(walled, secret, action):
    before = secret.stat()
    run(f"import os\npath = {str(secret)!r}\ndef f():\n    {action}", walled)
    assert (secret.stat().st_mode, secret.stat().st_mtime) == (before.st_mode, before.st_mtime)


def test_a_copy_within_the_scratch_folder_works(walled):
    source = (
        "import os, shutil\n"
        "def f():\n"
        "    open('a', 'w').write('x')\n"
        "    os.mkdir('d')\n"
        "    shutil.copy2('a', 'd/b'); os.rename('d/b', 'c'); os.symlink('c', 'l')\n"
        "    return [open('l').read(), sorted(os.listdir())]"
    )
    assert run(source, walled).output == ["x", ["a", "c", "candidate.py", "d", "l"]]


def test_libraries_can_be_read_and_loaded(walled):
    source = (
        "import decimal, sqlite3, zoneinfo\nimport scipy.linalg, numpy.fft\n"
        "def f(): return [scipy.linalg.det([[2.0]]), sqlite3.connect(':memory:').execute("
        "'select 7').fetchone()[0]]"
    )
    assert run(source, walled).output == [2.0, 7]


def test_a_listening_socket_of_ours_is_out_of_reach(walled):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = f"import socket\ndef f(): socket.create_connection(('127.0.0.1', {port}), 1)"
        assert POLICY in run(source, walled).error


@pytest.mark.parametrize("flags", [0x10000000, 0x20000, 0x40000000, 0x20000000, 0x8000])
def test_no_process_gets_a_namespace_or_parent_of_its_choice(walled, flags):
    source = (
        f"{CALL}\n"
        "def f():\n"
        f"    number = libc.syscall(56, {flags} | 17, 0, 0, 0, 0)\n"
        "    if number == 0: os._exit(0)\n"
        "    return number"
    )
    assert run(source, walled, Limits(wall_seconds=60, processes=4)).output == -1


def test_walls_stand_around_processes_too(walled, secret):
    source = (
        "import subprocess\n"
        f"def f(): return subprocess.run(['cat', {str(secret)!r}], capture_output=True).returncode"
    )
    result = run(source, walled, Limits(wall_seconds=60, processes=4))
    assert (result.error, result.output) == (None, 1)


def test_no_wall_stands_in_the_process_layer(secret):
    source = f"def f(): return open({str(secret)!r}).read()"
    assert run(source, Layer.PROCESS).output == "CANARY"


def test_a_candidate_has_no_powers(layer):
    source = (
        "def f(): return [line.split()[1] for line in open('/proc/self/status')"
        " if line.startswith(('CapPrm', 'CapEff', 'CapAmb', 'NoNewPrivs'))]"
    )
    result = run(source, layer)
    if layer is Layer.PROCESS:
        assert result.output == ["0000000000000000"] * 3 + ["1"]
    else:
        assert POLICY in result.error


def test_a_candidate_holds_its_input_its_log_and_its_answer_only(layer):
    source = """
import os

def f():
    held = []
    for number in range(256):
        try:
            held.append(os.readlink(f"/proc/self/fd/{number}").partition(":")[0])
        except OSError:
            continue
    return held
"""
    assert run(source, layer).output == ["/dev/null", "pipe", "pipe", "pipe", "pipe"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other machines have one kind of call")
@pytest.mark.parametrize(
    "code",
    [b"\xb8\x27\x00\x00\x40\x0f\x05\xc3", b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"],
    ids=["x32", "i386"],
)
def test_calls_of_another_kind_pass_no_filter(layer, code):
    source = (
        "import ctypes, mmap\n"
        "def f():\n"
        "    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS\n"
        "    held = mmap.mmap(-1, 4096, flags, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
        f"    held.write({code!r})\n"
        "    place = ctypes.addressof(ctypes.c_char.from_buffer(held))\n"
        "    return ctypes.CFUNCTYPE(ctypes.c_long)(place)()"
    )
    assert run(source, layer).error.startswith("the program was killed by SIG")


def test_threads_of_python_and_of_numerical_libraries_work(layer):
    source = (
        "import asyncio, ctypes, glob, os\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "import numpy as np\n"
        "def f():\n"
        "    libraries = os.path.join(os.path.dirname(np.__file__), '..', 'numpy.libs')\n"
        "    for path in glob.glob(os.path.join(libraries, '*openblas*')):\n"
        "        ctypes.CDLL(path).scipy_openblas_set_num_threads64_(4)\n"
        "    product = np.ones((600, 600)) @ np.ones((600, 600))\n"
        "    with ThreadPoolExecutor(4) as pool:\n"
        "        total = sum(pool.map(lambda x: x * x, range(8)))\n"
        "    return [float(product[0, 0]), total, asyncio.run(asyncio.to_thread(lambda: 5))]"
    )
    assert run(source, layer).output == [600.0, 140, 5]


def test_programs_can_be_read_only_where_they_may_be_started_whatever_ran_before(walled):
    source = "def f():\n    with open('/bin/sh', 'rb') as file: return len(file.read(2))"
    several, none = Limits(processes=1), Limits()
    assert [run(source, walled, limits).output for limits in (several, none)] == [2, None]
