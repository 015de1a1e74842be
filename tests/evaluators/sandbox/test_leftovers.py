"""Nothing a candidate started or wrote is there once its run or its slot is over."""

import os
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest
from sandbox_runs import (
    AMPLE,
    LAYERS,
    NO_NAMESPACES,
    ONE,
    POLICY,
    SCRATCH,
    WITHOUT_NAMESPACES,
    becomes_true,
    descendants,
    has_candidate,
    has_ended,
    has_ended_inside,
    has_namespaces,
    output_of,
    prepared_of,
    run,
    run_in,
    running,
    server_of,
    servers_of,
    start_script,
    why_absent,
)

from costada.evaluators.sandbox.inside.process_tree import SUPERVISOR_NAME
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot import SLOTS, Slot
from costada.evaluators.sandbox.slot_kind import SlotKind

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        not hasattr(os, "pidfd_open"), reason="watching other processes needs Linux"
    ),
]
MANY = Limits(wall_seconds=60, processes=8)
OWN = os.getpid()

CHILDREN = {
    "an ordinary child": "'sleep', '600'",
    "in a group of its own": "'sleep', '600'], process_group=0, *[",
    "in a session of its own": "'sleep', '600'], start_new_session=True, *[",
    "ignoring the terminal": "'sh', '-c', 'trap \"\" HUP INT TERM; sleep 600'",
    "without an environment": "'sleep', '600'], env={}, *[",
}


@pytest.mark.parametrize("words", CHILDREN.values(), ids=CHILDREN.keys())
def test_a_child_of_a_candidate_is_killed(words):
    source = f"import subprocess\ndef f(): print(subprocess.Popen([{words}]).pid)"
    assert has_ended_inside(int(run(source, Layer.PROCESS, MANY).log))


@pytest.mark.parametrize("end", ["return", "time.sleep(600)"])
def test_nothing_but_the_waiting_process_is_left_in_a_slot(layer, end):
    run("def f(): pass", layer)
    waiting = servers_of(os.getpid())
    source = (
        "import subprocess, time\n"
        "def f():\n"
        f"    subprocess.Popen(['sleep', '601{OWN}'], start_new_session=True, env={{}})\n"
        f"    {end}"
    )
    run(source, layer, Limits(wall_seconds=0.4, processes=8))
    assert becomes_true(lambda: not running(f"sleep\0601{OWN}\0"))
    assert servers_of(os.getpid()) == waiting
    assert becomes_true(lambda: len(prepared_of(os.getpid())) == len(waiting))


def daemon(words: str, ending: str) -> str:
    """A program that starts another one, without parent or environment, and continues."""
    return (
        "import os, sys, time\n"
        "def f():\n"
        "    folder, number = os.getcwd(), os.getpid()\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0:\n"
        f"            words = {words}\n"
        "            os.execve(words[0], words, {})\n"
        "        os._exit(0)\n"
        f"    {ending}"
    )


def marked(mark: str) -> str:
    """The words of a program that its command line can be known by."""
    return f"['/bin/sh', '-c', 'cd /; sleep 20; : {mark}']"


def test_an_orphan_that_forked_twice_is_killed(tmp_path):
    mark = f"orphan-of-{tmp_path.name}"
    run(daemon(marked(mark), "time.sleep(600)"), Layer.PROCESS, Limits(0.5, processes=8))
    assert becomes_true(lambda: not running(mark))


def test_a_child_that_holds_the_pipes_does_not_delay_the_result(layer):
    source = "import os, time\ndef f():\n    if os.fork() == 0: time.sleep(600)\n    os._exit(4)"
    result = run(source, layer, MANY)
    assert "exit status 4" in result.error
    assert result.seconds < 30


@pytest.mark.parametrize("each", LAYERS)
@pytest.mark.parametrize("start", ["os.fork()", "subprocess.run(['true'])"])
def test_a_process_is_refused_with_the_policy(each, start):
    if reason := why_absent(each):
        pytest.skip(reason)
    error = run(f"import os, subprocess\ndef f(): {start}", each).error
    refusal = "PermissionError: [Errno 1] Operation not permitted"
    assert error.splitlines()[:2] == [refusal, POLICY]


MESS = {
    "a file": "open('file', 'w').write('x')",
    "folders that may not be read": "os.makedirs('a/b'); os.chmod('a/b', 0); os.chmod('a', 0)",
    "folders made unreadable": "os.mkdir('a', 0o300); os.mkdir('a/b', 0)",
    "a link to everything": "os.symlink('/', 'root')",
    "a link in a circle": "os.symlink('.', 'self')",
    "a deep tree": "[os.mkdir(d) or os.chdir(d) for d in ['d'] * 200]",
    "a deep tree of long names": "[os.mkdir(d) or os.chdir(d) for d in ['d' * 255] * 40]",
    "a name that is not text": "os.mkdir(b'\\xff\\n')",
    "many folders": "[os.makedirs(f'a{n}/b') for n in range(100)]",
}


@pytest.mark.parametrize("mess", MESS.values(), ids=MESS.keys())
def test_what_a_candidate_wrote_is_not_there_for_the_next(layer, mess):
    assert run(f"import os\ndef f():\n    {mess}", layer).error is None
    source = "import os\ndef f(): return os.listdir()"
    assert run(source, layer).output == ["candidate.py"]
    if layer is Layer.PROCESS:
        assert run("import os\ndef f(): return os.listdir('..')", layer).output == ["work"]


def test_nothing_stays_beside_the_scratch_directory():
    leave = "import os\ndef f(): open('../left', 'w').close(); os.makedirs('../folder/below')"
    assert run(leave, Layer.PROCESS).error is None
    assert run("import os\ndef f(): return os.listdir('..')", Layer.PROCESS).output == ["work"]


def test_the_standard_input_of_a_candidate_is_not_that_of_the_next(layer):
    source = "import os\ndef f(): old = os.get_blocking(0); os.set_blocking(0, False); return old"
    assert [run(source, layer).output for _ in range(2)] == [True, True]


def test_the_candidate_has_a_session_of_its_own(layer):
    session, number = run("import os\ndef f(): return [os.getsid(0), os.getpid()]", layer).output
    assert session == number


def test_a_closed_slot_leaves_no_process_and_no_folder_and_follows_no_link(
    layer, tmp_path, monkeypatch
):
    SLOTS.close()
    kept, home = tmp_path / "kept", tmp_path / "home"
    kept.mkdir(mode=0o750)
    (kept / "file").write_text("x")
    home.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    source = f"import os\ndef f(): os.makedirs('a/b'); os.symlink({str(kept)!r}, 'link')"
    assert run(source, layer).error is None
    processes = servers_of(os.getpid())
    assert processes
    SLOTS.close()
    assert all(has_ended(pid) for pid in processes)
    assert becomes_true(lambda: not servers_of(os.getpid()))
    assert list(home.iterdir()) == []
    assert (kept / "file").read_text() == "x"
    assert kept.stat().st_mode & 0o777 == 0o750


def test_no_descriptor_stays_open(layer):
    sources = (ONE, "import os; os._exit(1)", "def f(:", "print('x' * 10**6)")
    run(ONE, layer)
    before = len(os.listdir("/proc/self/fd"))
    for source in sources * 2:
        run(source, layer, AMPLE)
    # It may be fewer, as descriptors of an earlier test may be closed in between.
    assert len(os.listdir("/proc/self/fd")) <= before


def test_no_descriptor_stays_open_after_slots_that_died():
    run(ONE, Layer.PROCESS)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        server = server_of(run(SCRATCH, Layer.PROCESS).output)
        os.kill(server, signal.SIGKILL)
        assert has_ended(server)
        assert run(ONE, Layer.PROCESS).output == 1
    assert len(os.listdir("/proc/self/fd")) <= before


FOREVER = "import time\nprint('begun')\ndef f():\n    while True: time.sleep(1)"


def test_all_is_gone_after_the_trusted_process_is_killed(layer, tmp_path):
    text = (
        f"layer = chosen_layer(Layer({layer.value!r}))\nprint(layer, flush=True)\n"
        f"run({FOREVER!r}, layer)"
    )
    process = start_script(text, tmp_path)
    assert process.stdout.readline() == f"{layer.value}\n"
    assert becomes_true(lambda: has_candidate(process.pid))
    slots = descendants(process.pid)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert all(has_ended(pid) for pid in slots)
    assert becomes_true(lambda: not list(tmp_path.glob("costada-*")))


def test_all_is_gone_at_the_end_of_the_interpreter(tmp_path):
    assert output_of(f"print(run({ONE!r}, Layer.PROCESS).output)", tmp_path) == "1"
    assert list(tmp_path.iterdir()) == []


def test_all_is_gone_if_the_interpreter_ends_during_an_evaluation(layer, tmp_path):
    text = (
        "from sandbox_runs import becomes_true, has_candidate\n"
        f"layer = chosen_layer(Layer({layer.value!r}))\n"
        f"threading.Thread(target=run, args=({FOREVER!r}, layer), daemon=True).start()\n"
        "print(becomes_true(lambda: has_candidate(os.getpid())))"
    )
    assert output_of(text, tmp_path) == "True"
    assert becomes_true(lambda: not list(tmp_path.glob("costada-*")))
    assert becomes_true(lambda: not running(str(tmp_path)))


ENDS_OF_A_SERVER = {
    "the program kills it": "os.kill(os.getppid(), 9)",
    "it and the supervisor are stopped": (
        "above = int(open(f'/proc/{os.getppid()}/stat').read().split()[3])\n"
        "    for number in (above, os.getppid()): os.kill(number, 19)"
    ),
}


@pytest.mark.parametrize("start", ["", WITHOUT_NAMESPACES], ids=["namespace", "no namespace"])
@pytest.mark.parametrize("end", ENDS_OF_A_SERVER.values(), ids=ENDS_OF_A_SERVER.keys())
def test_a_daemon_without_an_environment_ends_with_its_slot(start, end, tmp_path):
    mark = f"daemon-of-{tmp_path.name}"
    source = daemon(marked(mark), f"time.sleep(0.04)\n    {end}\n    time.sleep(9)")
    limits = "Limits(wall_seconds=1.5, processes=8)"
    text = f"{start}print(run({source!r}, Layer.PROCESS, {limits}).error is None)"
    assert output_of(text, tmp_path) == "False"
    assert becomes_true(lambda: not running(mark))


def test_a_daemon_ends_though_a_program_aims_at_all_that_is_above_it(tmp_path):
    if not has_namespaces():
        pytest.skip(NO_NAMESPACES)
    mark = f"daemon-of-{tmp_path.name}"
    kill_all = "time.sleep(0.04)\n    for number in (os.getppid(), -1): os.kill(number, 9)"
    result = run(daemon(marked(mark), kill_all), Layer.PROCESS, Limits(60, processes=8))
    assert result.error is None
    assert becomes_true(lambda: not running(mark))


SUPERVISORS = f"[one for one in descendants(os.getpid()) if name(one) == {SUPERVISOR_NAME!r}]"
KILLED_FROM_OUTSIDE = {
    "the server, namespace": ("", "servers_of(os.getpid())"),
    "the server, no namespace": (WITHOUT_NAMESPACES, "servers_of(os.getpid())"),
    "the supervisor, namespace": ("", SUPERVISORS),
}


@pytest.mark.parametrize(
    ("start", "killed"), KILLED_FROM_OUTSIDE.values(), ids=KILLED_FROM_OUTSIDE.keys()
)
def test_a_daemon_ends_when_what_is_above_it_is_killed_from_outside(start, killed, tmp_path):
    if killed is SUPERVISORS and not has_namespaces():
        pytest.skip(NO_NAMESPACES)
    mark = f"daemon-of-{tmp_path.name}"
    (tmp_path / "mark").write_text(mark)
    words = "['/bin/sh', '-c', 'cd /; sleep 20; : ' + open(f'{folder}/../../mark').read()]"
    text = (
        f"{start}from sandbox_runs import *\n"
        "name = lambda number: read_proc(number, 'comm').strip()\n"
        f"mark = open({str(tmp_path / 'mark')!r}).read()\n"
        "def kill():\n"
        "    assert becomes_true(lambda: running(mark), 20)\n"
        f"    for number in {killed}: os.kill(number, 9)\n"
        "threading.Thread(target=kill).start()\n"
        f"source = {daemon(words, 'time.sleep(9)')!r}\n"
        "print(run(source, Layer.PROCESS, Limits(wall_seconds=20, processes=8)).is_sandbox_fault)"
    )
    assert output_of(text, tmp_path) == "True"
    assert becomes_true(lambda: not running(mark))


WRITER = f"writer-of-{OWN}"
WRITE_ON = f"i=0; while [ $i -lt 300000 ]; do mkdir -p {{folder}}/d$i; i=$((i+1)); done; : {WRITER}"


def test_a_writer_that_outlives_its_slot_is_no_error_and_takes_no_slot():
    found = []
    kill = "time.sleep(0.04)\n    os.kill(os.getppid(), 9)\n    time.sleep(5)"
    source = daemon(f"['/bin/sh', '-c', f'cd /; {WRITE_ON}']", kill)
    limits = Limits(wall_seconds=3, scratch_mb=16)
    threads = [
        Thread(target=lambda: found.append(run(source, Layer.PROCESS, limits)), daemon=True)
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    try:
        assert [result.error is not None for result in found] == [True] * 6
        assert run(ONE, Layer.PROCESS).output == 1
    finally:
        for number in running(WRITER):
            with suppress(ProcessLookupError):
                os.kill(number, 9)


def test_who_traces_a_candidate_does_not_hold_up_its_end():
    trace = "import ctypes, sys, time; ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), 0, 0)"
    mark = f"tracer-of-{OWN}"
    words = f"[sys.executable, '-c', '{trace}; time.sleep(20)', str(number), '{mark}']"
    limits = Limits(wall_seconds=2, processes=4)
    result = run(daemon(words, "time.sleep(60)"), Layer.PROCESS, limits)
    assert result.error == "timeout: the program exceeded 2 s"
    assert not result.is_sandbox_fault
    assert becomes_true(lambda: not running(mark))


REMOVE = (
    "from contextlib import suppress\n"
    "from costada.evaluators.sandbox.inside.scratch_folder import SlotFolder\n"
)


def test_each_folder_of_a_shallow_tree_is_listed_once_when_it_is_removed(tmp_path):
    for number in range(50):
        (tmp_path / "tree" / str(number) / "below").mkdir(parents=True)
    text = (
        f"{REMOVE}listed = []\n"
        "sys.addaudithook(lambda name, _: name == 'os.scandir' and listed.append(name))\n"
        f"SlotFolder({str(tmp_path / 'tree')!r}).remove()\n"
        "print(len(listed))"
    )
    assert output_of(text, tmp_path) == "51"
    assert not (tmp_path / "tree").exists()


def test_a_tree_that_is_wide_and_deep_is_removed(tmp_path):
    for number in range(5):
        wide = tmp_path / "tree" / "/".join(str(number) * 20)
        for name in ("a/b", "c"):
            (wide / name).mkdir(parents=True)
        (wide.parents[9] / "file").write_text("x")
    assert output_of(f"{REMOVE}SlotFolder({str(tmp_path / 'tree')!r}).remove()", tmp_path) == ""
    assert not (tmp_path / "tree").exists()


def test_a_folder_that_is_moved_while_it_is_emptied_leads_nowhere(tmp_path):
    deep = tmp_path / "slot" / "/".join("abcdefghijklmnopqrstuvwxyz")
    deep.mkdir(parents=True)
    (tmp_path / "precious" / "folder").mkdir(parents=True)
    text = (
        f"{REMOVE}root = {str(tmp_path)!r}\n"
        "def move(name, arguments):\n"
        "    if name == 'os.rmdir' and arguments[0] == 'z':\n"
        "        inner = '/'.join('abcdefghijklmnopqr')\n"
        "        os.rename(f'{root}/slot/{inner}', f'{root}/precious/r')\n"
        "sys.addaudithook(move)\n"
        "folder = SlotFolder(f'{root}/slot')\n"
        "with suppress(OSError):\n"
        "    folder.remove()\n"
        "print('moved', os.path.exists(f'{root}/precious/folder'))"
    )
    assert output_of(text, tmp_path) == "moved True"


KINDS = {
    "forked": SlotKind(Layer.PROCESS, (), files_mb=0),
    "single use": SlotKind(Layer.PROCESS, (), is_single_use=True, files_mb=0),
}
NOBODY = 65534


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def slot(request, tmp_path, monkeypatch):
    """A slot whose folder lies in tmp_path / "slots"."""
    (tmp_path / "slots").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "slots"))
    slot = Slot(request.param)
    yield slot
    slot.destroy()


def contents(folder):
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.lstat().st_uid)
        for path in [folder, *folder.rglob("*")]
    }


@pytest.mark.parametrize("put", ["os.symlink({target!r}, home)", "os.rename({target!r}, home)"])
def test_a_folder_in_the_place_of_the_slots_own_is_left_alone(slot, tmp_path, put):
    precious = tmp_path / "precious"
    (precious / "work").mkdir(parents=True)
    for name in ("file", "work/candidate.py", "work/other"):
        (precious / name).write_text("x")
    precious.chmod(0o750)
    before, home = contents(precious), Path(slot.scratch).parent
    move = "home = os.path.dirname(os.getcwd()); os.rename(home, home + '-away')"
    put = put.format(target=str(precious))
    assert run_in(slot, f"import os\ndef f():\n    {move}; {put}; return 1").output == 1
    assert becomes_true(lambda: not slot.is_alive)
    slot.destroy()
    assert contents(precious if precious.exists() else home) == before
    assert [path for path in (tmp_path / "slots").iterdir() if path != home] == []
    assert not home.is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of another user: run as root")
def test_a_folder_of_another_user_in_the_slots_own_is_left_alone(slot, tmp_path):
    others = tmp_path / "home" / "other"
    others.mkdir(parents=True)
    (others / "file").write_text("x")
    for path in (others, others / "file"):
        os.chown(path, NOBODY, NOBODY)
    before = contents(others)
    move = f"os.rename({str(others.parent)!r}, 'taken'); return os.getcwd()"
    taken = Path(run_in(slot, f"import os\ndef f():\n    {move}").output, "taken")
    slot.destroy()
    [found] = [path for path in tmp_path.rglob("other") if path.is_dir()]
    assert contents(found) == before
    assert not taken.is_symlink()
