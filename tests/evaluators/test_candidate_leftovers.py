"""Nothing a candidate started or wrote is there once its run is over."""

import os
import signal
import tempfile
from pathlib import Path

import pytest
from sandbox_runs import (
    AMPLE,
    POLICY,
    SCRATCH,
    becomes_true,
    command_of,
    descendants,
    has_candidate,
    has_ended,
    has_ended_inside,
    run,
    start_script,
    told_by_script,
    ward_of,
    zygotes_of,
)

from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot import SLOTS

pytestmark = pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="watching strangers' processes needs Linux"
)
MANY = Limits(wall_seconds=60, processes=8)

CHILDREN = {
    "an ordinary child": "subprocess.Popen(['sleep', '600']).pid",
    "a child in a group of its own": "subprocess.Popen(['sleep', '600'], process_group=0).pid",
    "a child in a session of its own": (
        "subprocess.Popen(['sleep', '600'], start_new_session=True).pid"
    ),
    "a child that ignores the terminal": (
        "subprocess.Popen(['sh', '-c', 'trap \"\" HUP INT TERM; sleep 600']).pid"
    ),
    "a child without an environment": "subprocess.Popen(['sleep', '600'], env={}).pid",
}


@pytest.mark.parametrize("start", CHILDREN.values(), ids=CHILDREN.keys())
def test_a_child_of_a_candidate_is_killed(start):
    result = run(f"import subprocess\ndef f(): print({start})", Layer.PROCESS, MANY)
    assert has_ended_inside(int(result.log))


@pytest.mark.parametrize("end", ["return", "time.sleep(600)"])
def test_nothing_but_the_waiting_process_is_left_in_a_slot(layer, end):
    run("def f(): pass", layer)
    waiting = zygotes_of(os.getpid())
    source = (
        "import subprocess, time\n"
        "def f():\n"
        "    subprocess.Popen(['sleep', '601'], start_new_session=True, env={})\n"
        f"    {end}"
    )
    run(source, layer, Limits(wall_seconds=0.4, processes=8))
    assert becomes_true(lambda: not running(b"sleep\x00601\x00"))
    assert zygotes_of(os.getpid()) == waiting


def running(part: bytes) -> list[int]:
    """Return the processes whose command holds something."""
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [number for number in numbers if part in command_of(number)]


def test_an_orphan_that_forked_twice_is_killed():
    source = (
        "import os, time\n"
        "def f():\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0:\n"
        "            print(os.getpid())\n"
        "            time.sleep(600)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "    time.sleep(600)"
    )
    limits = Limits(wall_seconds=0.5, processes=8)
    assert has_ended_inside(int(run(source, Layer.PROCESS, limits).log))


def test_a_child_that_holds_the_pipes_does_not_delay_the_verdict(layer):
    source = "import os, time\ndef f():\n    if os.fork() == 0: time.sleep(600)\n    os._exit(4)"
    result = run(source, layer, MANY)
    assert "exit status 4" in result.error
    assert result.seconds < 5


def test_a_process_is_refused_with_the_policy(walled):
    error = run("import os\ndef f(): os.fork()", walled).error
    assert error.splitlines()[:2] == [
        "PermissionError: [Errno 1] Operation not permitted",
        POLICY,
    ]


MESS = {
    "a file": "open('file', 'w').write('x')",
    "folders that may not be read": "os.makedirs('a/b'); os.chmod('a/b', 0); os.chmod('a', 0)",
    "folders made unreadable": "os.mkdir('a', 0o300); os.mkdir('a/b', 0)",
    "a link to everything": "os.symlink('/', 'root')",
    "a link in a circle": "os.symlink('.', 'self')",
    "a deep tree": "[os.mkdir(d) or os.chdir(d) for d in ['d'] * 200]",
    "a deep tree of long names": "[os.mkdir(d) or os.chdir(d) for d in ['d' * 255] * 40]",
    "a name that is no text": "os.mkdir(b'\\xff\\n')",
    "many folders": "[os.makedirs(f'a{n}/b') for n in range(100)]",
}


@pytest.mark.parametrize("layer", [Layer.PROCESS, Layer.BUBBLEWRAP], indirect=True)
@pytest.mark.parametrize("mess", MESS.values(), ids=MESS.keys())
def test_what_a_candidate_wrote_is_not_there_for_the_next(layer, mess):
    assert run(f"import os\ndef f():\n    {mess}", layer).error is None
    source = "import os\ndef f(): return os.listdir()"
    assert run(source, layer).output == ["candidate.py"]
    if layer is Layer.PROCESS:
        beside = run(source.replace("listdir()", "listdir('..')"), layer).output
        assert beside == ["work"]


def test_the_standard_input_of_a_candidate_is_not_that_of_the_next(layer):
    source = "import os\ndef f(): old = os.get_blocking(0); os.set_blocking(0, False); return old"
    assert [run(source, layer).output for _ in range(2)] == [True, True]


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
    processes = zygotes_of(os.getpid())
    assert processes
    SLOTS.close()
    assert all(has_ended(pid) for pid in processes)
    assert becomes_true(lambda: not zygotes_of(os.getpid()))
    assert list(home.iterdir()) == []
    assert (kept / "file").read_text() == "x"
    assert kept.stat().st_mode & 0o777 == 0o750


def test_no_descriptor_stays_open(layer):
    sources = ("def f(): return 1", "import os; os._exit(1)", "def f(:", "print('x' * 10**6)")
    run(sources[0], layer)
    before = sorted(os.listdir("/proc/self/fd"))
    for source in sources * 2:
        run(source, layer, AMPLE)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_no_descriptor_stays_open_after_slots_that_died():
    run("def f(): return 1", Layer.PROCESS)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        os.kill(ward_of(run(SCRATCH, Layer.PROCESS).output), signal.SIGKILL)
        assert run("def f(): return 1", Layer.PROCESS).output == 1
    assert len(os.listdir("/proc/self/fd")) <= before


def test_the_candidate_has_a_session_of_its_own(layer):
    result = run("import os\ndef f(): return [os.getsid(0), os.getpid()]", layer)
    assert result.output[0] == result.output[1]


FOREVER = "import time\nprint('begun')\ndef f():\n    while True: time.sleep(1)"


def test_all_is_gone_after_the_trusted_process_is_killed(layer, tmp_path):
    process = start_script(
        f"layer = chosen_layer(Layer({layer.value!r}))\nprint(layer, flush=True)\n"
        f"run({FOREVER!r}, layer)",
        tmp_path,
    )
    assert process.stdout.readline() == f"{layer.value}\n"
    assert becomes_true(lambda: has_candidate(process.pid), 20)
    slots = descendants(process.pid)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert all(has_ended(pid) for pid in slots)
    assert becomes_true(lambda: not list(tmp_path.glob("costada-*")))


def test_all_is_gone_at_the_end_of_the_interpreter(tmp_path):
    text = "print(run('def f(): return 1', Layer.PROCESS).output)"
    assert told_by_script(text, tmp_path) == "1"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("layer", [Layer.PROCESS, Layer.BUBBLEWRAP], indirect=True)
def test_all_is_gone_after_an_end_with_an_evaluation_under_way(layer, tmp_path):
    text = (
        "from sandbox_runs import becomes_true, has_candidate\n"
        f"layer = chosen_layer(Layer({layer.value!r}))\n"
        f"threading.Thread(target=run, args=({FOREVER!r}, layer), daemon=True).start()\n"
        "print(becomes_true(lambda: has_candidate(os.getpid()), 20))"
    )
    told = told_by_script(text, tmp_path, PYTHONPATH=str(Path(__file__).parent))
    assert told == "True"
    assert becomes_true(lambda: not list(tmp_path.glob("costada-*")))
    assert becomes_true(lambda: not running(os.fsencode(tmp_path)))


def test_nothing_stays_beside_the_scratch_directory():
    leave = "import os\ndef f(): open('../left', 'w').close(); os.makedirs('../folder/below')"
    assert run(leave, Layer.PROCESS).error is None
    look = "import os\ndef f(): return os.listdir('..')"
    assert run(look, Layer.PROCESS).output == ["work"]
