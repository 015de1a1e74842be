"""Nothing a candidate started or wrote is there once its run is over."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.run import run_candidate

pytestmark = pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="watching strangers' processes needs Linux"
)
AMPLE = Limits(wall_seconds=60)


def has_ended(pid: int) -> bool:
    """Return whether a process is gone, or goes within five seconds."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], 5)[0])
    finally:
        os.close(fd)


CHILDREN = {
    "an ordinary child": "subprocess.Popen(['sleep', '600']).pid",
    "a child in a group of its own": "subprocess.Popen(['sleep', '600'], process_group=0).pid",
    "a child in a session of its own": (
        "subprocess.Popen(['sleep', '600'], start_new_session=True).pid"
    ),
    "a child that ignores the terminal": (
        "subprocess.Popen(['sh', '-c', 'trap \"\" HUP INT TERM; sleep 600']).pid"
    ),
}


@pytest.mark.parametrize("start", CHILDREN.values(), ids=CHILDREN.keys())
@pytest.mark.parametrize("end", ["return", "while True: pass"])
def test_a_child_of_a_candidate_is_killed(start, end):
    source = f"import subprocess\ndef f():\n    print({start})\n    {end}"
    wall = 60 if end == "return" else 1
    result = run_candidate(source, "f", Limits(wall_seconds=wall))
    assert has_ended(int(result.log))


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
        "    while True: pass"
    )
    assert has_ended(int(run_candidate(source, "f", Limits(wall_seconds=1)).log))


def test_a_child_that_holds_the_pipes_does_not_delay_the_verdict():
    source = "import os, time\ndef f():\n    if os.fork() == 0: time.sleep(600)\n    os._exit(4)"
    result = run_candidate(source, "f", AMPLE)
    assert "exit status 4" in result.error
    assert result.seconds < 30


@pytest.mark.parametrize(
    "mess",
    [
        "open('file', 'w').write('x')",
        "os.makedirs('a/b'); os.chmod('a/b', 0); os.chmod('a', 0)",
        "os.symlink('/', 'root')",
        "[os.mkdir(d) or os.chdir(d) for d in ['d'] * 200]",
    ],
)
def test_the_scratch_directory_is_removed(mess):
    result = run_candidate(
        f"import os\ndef f():\n    p = os.getcwd(); {mess}; return p", "f", AMPLE
    )
    assert result.error is None
    assert not Path(result.output).exists()


def test_a_link_out_of_the_scratch_directory_is_not_followed(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o750)
    (kept / "file").write_text("x")
    source = f"import os\ndef f(): os.symlink({str(kept)!r}, 'link')"
    assert run_candidate(source, "f", AMPLE).error is None
    assert (kept / "file").read_text() == "x"
    assert kept.stat().st_mode & 0o777 == 0o750


def test_no_pipe_stays_open():
    before = len(os.listdir("/proc/self/fd"))
    for source in ("def f(): return 1", "import os; os._exit(1)", "def f(:"):
        run_candidate(source, "f", AMPLE)
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_interrupt_kills_the_candidate_and_passes_on(tmp_path):
    note = tmp_path / "pid"
    source = (
        "import os, signal, time\nfrom pathlib import Path\n"
        "def f():\n"
        f"    Path({str(note)!r}).write_text(f'{{os.getpid()}} {{os.getcwd()}}')\n"
        "    os.kill(os.getppid(), signal.SIGINT)\n"
        "    time.sleep(600)"
    )
    with pytest.raises(KeyboardInterrupt):
        run_candidate(source, "f", AMPLE)
    pid, scratch = note.read_text().split()
    assert has_ended(int(pid))
    assert not Path(scratch).exists()


def test_the_candidate_has_a_session_of_its_own():
    assert run_candidate("import os\ndef f(): return os.getsid(0)", "f", AMPLE).output != os.getsid(
        0
    )


def test_the_candidate_dies_with_the_process_that_started_it(tmp_path):
    note = tmp_path / "pid"
    candidate = (
        "import os, signal, time\nfrom pathlib import Path\n"
        "def f():\n"
        f"    Path({str(note)!r}).write_text(str(os.getpid()))\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    time.sleep(600)"
    )
    script = (
        "from costada.evaluators.sandbox.run import Limits, run_candidate\n"
        f"run_candidate({candidate!r}, 'f', Limits(60))"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert has_ended(int(note.read_text()))
