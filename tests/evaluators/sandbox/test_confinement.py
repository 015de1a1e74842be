"""What a candidate cannot do behind Landlock and bubblewrap, for root and for an ordinary user."""

import errno
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy
import pytest
from needed_programs import require
from sandbox_runs import CALL, POLICY, run

import costada
from costada.evaluators.folder_files import EvaluatorFile
from costada.evaluators.sandbox.candidate_runs import run_evaluator
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits

pytestmark = pytest.mark.process

CPU_LIMITS = [
    f"/sys/fs/cgroup/{name}"
    for name in ("cpu.max", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")
]

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


def test_what_there_is_of_the_limits_of_cpu_time_is_readable(confined):
    there = f"filter(os.path.exists, {CPU_LIMITS})"
    source = f"import os\ndef f(): return [len(open(path).read()) for path in {there}]"
    result = run(source, confined)
    assert (result.error, 0 in result.output) == (None, False)


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text("CANARY")
    return path


@pytest.mark.parametrize("action", REFUSED.values(), ids=REFUSED.keys())
def test_it_is_refused_with_the_policy(confined, secret, action):
    action = action.format(path=str(secret), folder=str(secret.parent), pid=os.getpid())
    result = run(f"{CALL}\ndef f():\n    {action}", confined)
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
def test_it_is_refused_in_words_of_the_system(confined, secret, action):
    result = run(f"{CALL}\ndef f():\n    {action.format(path=str(secret))}", confined)
    assert result.error is not None
    assert "CANARY" not in f"{result}"


@pytest.mark.parametrize("action", ["os.chmod(path, 0o777)", "os.utime(path, (0, 0))"])
def test_what_seems_to_succeed_changes_nothing(confined, secret, action):
    before = secret.stat()
    run(f"import os\npath = {str(secret)!r}\ndef f():\n    {action}", confined)
    assert (secret.stat().st_mode, secret.stat().st_mtime) == (before.st_mode, before.st_mtime)


COPY = """import os, shutil
def f():
    open('a', 'w').write('x')
    os.mkdir('d')
    shutil.copy2('a', 'd/b'); os.rename('d/b', 'c'); os.symlink('c', 'l')
    return [open('l').read(), sorted(os.listdir())]
"""
LIBRARIES = """import decimal, sqlite3, zoneinfo
import scipy.linalg, numpy.fft
def f():
    [seven] = sqlite3.connect(':memory:').execute('select 7').fetchone()
    return [scipy.linalg.det([[2.0]]), seven]
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [(COPY, ["x", ["a", "c", "candidate.py", "d", "l"]]), (LIBRARIES, [2.0, 7])],
    ids=["copies within the scratch folder", "libraries"],
)
def test_ordinary_work_is_allowed(confined, source, expected):
    assert run(source, confined).output == expected


def test_a_listening_socket_of_ours_is_out_of_reach(confined):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = f"import socket\ndef f(): socket.create_connection(('127.0.0.1', {port}), 1)"
        assert POLICY in run(source, confined).error


@pytest.mark.parametrize("flags", [0x10000000, 0x20000, 0x40000000, 0x20000000, 0x8000])
def test_no_process_gets_a_namespace_or_parent_of_its_choice(confined, flags):
    source = (
        f"{CALL}\n"
        "def f():\n"
        f"    number = libc.syscall(56, {flags} | 17, 0, 0, 0, 0)\n"
        "    if number == 0: os._exit(0)\n"
        "    return number"
    )
    assert run(source, confined, Limits(wall_seconds=60, processes=4)).output == -1


def test_a_process_of_a_candidate_is_confined_too(confined, secret):
    source = (
        "import subprocess\n"
        f"def f(): return subprocess.run(['cat', {str(secret)!r}], capture_output=True).returncode"
    )
    result = run(source, confined, Limits(wall_seconds=60, processes=4))
    assert (result.error, result.output) == (None, 1)


def test_the_process_layer_confines_nothing(secret):
    assert run(f"def f(): return open({str(secret)!r}).read()", Layer.PROCESS).output == "CANARY"


def test_a_candidate_has_no_capabilities(layer):
    source = (
        "def f(): return [line.split()[1] for line in open('/proc/self/status')"
        " if line.startswith(('CapPrm', 'CapEff', 'CapAmb', 'NoNewPrivs'))]"
    )
    assert run(source, layer).output == ["0000000000000000"] * 3 + ["1"]


def test_a_candidate_holds_its_input_its_log_and_its_answer_only(layer):
    source = """
import os

def f():
    held = []
    for number in range(5000):
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


def test_programs_can_be_read_only_where_they_may_be_started_whatever_ran_before(confined):
    source = "def f():\n    with open('/bin/sh', 'rb') as file: return len(file.read(2))"
    several, none = Limits(processes=1), Limits()
    assert [run(source, confined, limits).output for limits in (several, none)] == [2, None]


STEALING = """
import os, sys
def f(folder):
    found = []
    for path in (
        "evaluators/benchmarks/signal_processing/evaluator.py",
        "evaluators/benchmarks/signal_processing/initial_program.py",
        "evaluators/sandbox/limits.py",
    ):
        try:
            found.append(open(os.path.join(folder, path)).read()[:40])
        except OSError as error:
            found.append(type(error).__name__)
    sys.path.insert(0, os.path.dirname(folder))
    try:
        import costada.evaluators.benchmarks.signal_processing.evaluator as evaluator
        found.append(evaluator.make_signals()[0].clean[:2].tolist())
    except (ImportError, PermissionError):
        found.append("not imported")
    import neighbour
    return [*found, neighbour.VALUE]
"""
RUNNING = """
import sys
from pathlib import Path
# An editable installation would be found before all folders of the path.
sys.meta_path = [each for each in sys.meta_path if "__editable__" not in str(each)]
import costada
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.candidate_runs import run_candidate
folder = str(Path(costada.__file__).parent)
assert folder == sys.argv[2], folder
result = run_candidate(
    sys.argv[3], "f", Limits(wall_seconds=60), {"folder": folder}, Layer(sys.argv[1]), ("numpy",)
)
print(result.error or result.output)
"""


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """A folder of libraries that holds this package and another module; links lead to it too."""
    environment = tmp_path_factory.mktemp("installed")
    libraries = environment / "lib" / "site-packages"
    (environment / "lib64").symlink_to("lib")
    root = Path(costada.__file__).parent
    for room in ("evaluators", "values"):
        shutil.copytree(root / room, libraries / "costada" / room)
    (libraries / "costada" / "__init__.py").write_text("")
    (libraries / "neighbour.py").write_text("VALUE = 7\n")
    for name in ("here", "again"):
        (libraries / name).symlink_to(".")
    return libraries


def test_this_package_cannot_be_read_or_imported_where_it_is_installed(confined, installed):
    again = installed.parents[1] / "lib64" / "site-packages"
    head = f"import sys; sys.path[:0] = [{str(installed)!r}, {str(again)!r}]\n"
    words = [str(confined), str(installed / "costada"), STEALING]
    answer = subprocess.run(
        [sys.executable, "-c", head + RUNNING, *words], capture_output=True, text=True, check=False
    )
    expected = "['PermissionError', 'PermissionError', 'PermissionError', 'not imported', 7]"
    assert (answer.stdout.strip(), answer.stderr) == (expected, "")


AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all")
SCRIPT = """
import json, os, sys
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.candidate_runs import run_candidate
SOURCES = {
    "answer": "def f(): return 42",
    "memory": "def f(): return open('/proc/%d/environ').read()" % os.getpid(),
    "above": "import os\\ndef f(): return os.getppid()",
    "server": "import os\\ndef f(): return open('/proc/%d/mem' % os.getppid(), 'rb').read(1)[0]",
    "hidden": (
        "import os, time\\n"
        "def f():\\n"
        "    os.mkdir('d', 0o300)\\n"
        "    for n in range(3): open(f'd/{n}', 'wb').write(bytes(9 * 2**20))\\n"
        "    time.sleep(20)"
    ),
    "hang": "import time\\ndef f(): time.sleep(60)",
    "next": "import os\\ndef f(): return [os.getuid(), os.listdir()]",
}
def answers(layer):
    try: chosen_layer(layer)
    except ValueError as reason: return str(reason)
    results = {}
    for name, source in SOURCES.items():
        limits = Limits(wall_seconds=0.3 if name == "hang" else 60, scratch_mb=10)
        result = run_candidate(source, "f", limits, layer=layer, preload=())
        results[name] = result.output if result.error is None else result.error
    return results
print(json.dumps(answers(Layer(sys.argv[1]))))
"""
TRIAL = "import costada, numpy, subprocess, sys; subprocess.run([sys.executable, '-V'], check=True)"


@pytest.fixture(scope="module")
def nobody():
    """An interpreter that nobody may start, its environment, and a folder of nobody's own."""
    if os.geteuid() != 0:
        pytest.skip("only root becomes another user: run as root")
    require("setpriv")
    with TemporaryDirectory() as name:
        folder, home = Path(name), Path(name) / "home"
        folder.chmod(0o755)
        home.mkdir()
        os.chown(home, 65534, 65534)
        (folder / "costada").symlink_to(Path(costada.__file__).parent)
        libraries = Path(numpy.__file__).parents[1]
        environment = {"TMPDIR": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C"}
        environment |= {"PYTHONPATH": f"{folder}:{libraries}", "PYTHONDONTWRITEBYTECODE": "1"}
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        for program in (sys.executable, shutil.which(version, path="/usr/local/bin:/usr/bin")):
            command = [*AS_NOBODY, str(program), "-c", TRIAL]
            done = subprocess.run(command, env=environment, capture_output=True, check=False)
            if done.returncode == 0:
                break
        else:
            pytest.skip(f"an unprivileged user may start no interpreter with {libraries}")
        yield program, environment, home


@pytest.mark.parametrize("name", ["process", "landlock", "bubblewrap"])
def test_candidates_of_an_unprivileged_user_are_confined(nobody, name):
    program, environment, home = nobody
    command = [*AS_NOBODY, program, "-c", SCRIPT, name]
    found = json.loads(subprocess.check_output(command, env=environment, timeout=60))
    if isinstance(found, str) and name != "process":
        pytest.skip(found)
    assert found["answer"] == 42
    if found["above"] <= 2:  # in a pid namespace
        assert "Errno" in found["memory"]
    assert "Errno" in found["server"]
    assert "the limit of the program's files is 10 MB" in found["hidden"]
    assert found["hang"] == "timeout: the program exceeded 0.3 s"
    assert found["next"] == [65534, ["candidate.py"]]
    assert list(home.iterdir()) == []


ITSELF = """
def f():
    lines = [open(f"/proc/self/{name}").readline() for name in ("maps", "stat", "statm", "status")]
    return [len(line) > 0 for line in lines]
"""
OTHERS = """
import os
def f():
    refused = []
    for path in PATHS:
        try: open(path, "rb").read()
        except PermissionError: refused.append(path)
    return refused
"""


def test_a_candidate_reads_of_processes_only_what_concerns_itself(confined):
    other = f"/proc/{os.getpid()}/status"  # a process of this test, or none in a namespace
    paths = ["/proc/1/cmdline", "/proc/self/environ", "/proc/self/net/unix", "/proc/mounts"]
    assert run(ITSELF, confined).output == [True] * 4
    assert run(f"PATHS = {paths!r}{OTHERS}", confined).output == paths
    found = run(f"PATHS = {[other]!r}{OTHERS}", confined)
    assert found.output == [other] or "No such file" in str(found.error)


LIMITING = """
import ctypes, json, os, resource, subprocess, sys
LIBC = ctypes.CDLL(None, use_errno=True)
def number_of(process, is_set):
    "The error of a call of prlimit64; 0 if it succeeds."
    limits = (ctypes.c_ulong * 2)(5, 5) if is_set else None
    found = (ctypes.c_ulong * 2)()
    call = LIBC.prlimit64
    return ctypes.get_errno() if call(process, resource.RLIMIT_CPU, limits, found) else 0
def by_calls():
    mine = {f"{process} {is_set}": number_of(os.getpid() if process else 0, is_set)
        for process in (0, 1) for is_set in (0, 1)}
    return mine | {"read": resource.getrlimit(resource.RLIMIT_CPU)[0] > 0}
"""


def test_a_candidate_reads_its_limits_and_sets_none(confined):
    source = f"{LIMITING}\ndef f(): return by_calls()\n"
    expected = {"0 0": 0, "0 1": errno.EPERM, "1 0": 0, "1 1": errno.EPERM, "read": True}
    assert run(source, confined).output == expected


def test_an_evaluator_sets_the_limits_of_what_it_starts(confined, tmp_path):
    (tmp_path / "evaluator.py").write_text(
        LIMITING + "def evaluate(path):\n"
        "    if not (fork := os.fork()):\n"
        "        os._exit(by_calls()['0 1'])\n"
        "    status = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])\n"
        "    limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (7, 7))\n"
        "    told = subprocess.check_output([sys.executable, path], preexec_fn=limit)\n"
        "    return {'set': status == 0, **json.loads(told)}\n"
    )
    source = (
        f"{LIMITING}\nlimit = resource.getrlimit(resource.RLIMIT_CPU)[0]\n"
        "def raised(name):\n"
        "    try: resource.setrlimit(getattr(resource, name), (resource.RLIM_INFINITY,) * 2)\n"
        "    except (OSError, ValueError): return 0\n"
        "    return 1\n"
        "names = ('RLIMIT_CPU', 'RLIMIT_DATA', 'RLIMIT_FSIZE', 'RLIMIT_NOFILE')\n"
        "print(json.dumps({'limit': limit, 'others': number_of(os.getppid(), 1),\n"
        "    'num_raised': sum(map(raised, names))}))\n"
    )
    evaluator = EvaluatorFile(tmp_path, tmp_path / "evaluator.py")
    limits = Limits(wall_seconds=60, processes=16)
    result = run_evaluator(source, evaluator, limits, confined, ())
    assert result.error is None
    assert result.output["metrics"] == {
        **{"set": 1.0, "limit": 7.0, "num_raised": 0.0},
        "others": float(errno.EPERM),
    }
