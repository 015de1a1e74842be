"""Candidates in interpreters of their own, as on systems where a warm process must not fork."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hostile.corpus import SHARED
from needed_programs import needs
from sandbox_runs import (
    AMPLE,
    ONE,
    becomes_true,
    descendants,
    has_ended,
    run_in,
    start_script,
)
from waiting import check_in_time

from costada.evaluators.benchmarks.circle_packing.evaluator import ENTRY_POINT, score_packing
from costada.evaluators.sandbox.concurrency import allow_evaluations, cancel_evaluations
from costada.evaluators.sandbox.execution import execute, request_for
from costada.evaluators.sandbox.inside import process_tree
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot import SLOTS, Slot
from costada.evaluators.sandbox.slot_kind import SlotKind, can_fork

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="watching other processes needs Linux"
    ),
]
SINGLE_USE = SlotKind(Layer.PROCESS, (), is_single_use=True)
INDEX = SHARED / "index.json"
COLLECTION = json.loads(INDEX.read_text())["programs"] if INDEX.exists() else []
ONE_OF_EACH_CATEGORY = list({program["category"]: program for program in COLLECTION}.values())


def run(source, limits=AMPLE, entry_point="f", kind=SINGLE_USE):
    with SLOTS.acquire(kind) as slot:
        return run_in(slot, source, limits, entry_point)


@pytest.mark.skipif(not COLLECTION, reason="the shared collection is absent")
@pytest.mark.parametrize("program", ONE_OF_EACH_CATEGORY, ids=lambda program: program["name"])
def test_a_program_of_the_collection_gets_its_verdict(program):
    wall = 0.3 if "timeout" in program.get("tags", []) else 60.0
    source = (SHARED / program["file"]).read_text()
    result = run(source, Limits(wall_seconds=wall, memory_mb=400), ENTRY_POINT)
    if program["expect"] != "reject":
        verdict = score_packing(result.output)
        assert verdict.objective == pytest.approx(program["honest_score"], abs=1e-6)
    elif result.error is None:
        with pytest.raises(ValueError):
            score_packing(result.output)


def test_this_kind_of_slot_is_for_systems_where_nothing_warm_can_be_forked():
    assert SlotKind(Layer.PROCESS, ()).is_single_use is not can_fork()


def test_nothing_passes_from_a_candidate_to_the_next():
    source = (
        "import math, os, sys\n"
        "def f():\n"
        "    met = [hasattr(math, 'mark'), os.path.exists('mark'), 'costada' in sys.modules]\n"
        "    math.mark = open('mark', 'w').close()\n"
        "    return [os.getpid(), *met]"
    )
    first, second = run(source).output, run(source).output
    assert first[1:] == second[1:] == [False, False, False]
    assert first[0] != second[0]


def test_a_candidate_may_remove_its_own_folder_and_leaves_nothing_beside_it():
    remove = "import os, shutil\ndef f(): shutil.rmtree(os.getcwd()); return 1"
    leave = "import os\ndef f(): open('../left', 'w').close(); os.mkdir('../more')"
    see = "import os\ndef f(): return os.listdir('..')"
    with SLOTS.acquire(SINGLE_USE) as slot:
        assert [run_in(slot, remove).output for _ in range(2)] == [1, 1]
        assert run_in(slot, leave).error is None
        assert run_in(slot, see).output == ["work"]


def test_the_libraries_are_loaded_before_a_candidate_comes():
    source = "import sys\nloaded = 'colorsys' in sys.modules\ndef f(): return loaded"
    assert run(source).output is False
    assert run(source, kind=SlotKind(Layer.PROCESS, ("colorsys",), is_single_use=True)).output


def test_only_its_own_pipes_and_a_scrubbed_environment_are_there(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-CANARY-1")
    source = "import os\ndef f(): return [sorted(os.listdir('/proc/self/fd')), dict(os.environ)]"
    descriptors, environment = run(source).output
    assert len(descriptors) <= 6
    assert "CANARY" not in f"{environment}"
    assert environment["HOME"] == environment["TMPDIR"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("os._exit(3)", "ended its process (exit status 3) before it returned"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL before it returned"),
        ("raise SystemExit(1)", "SystemExit: the program called exit (1)"),
        ("return bytearray(10**9)", "MemoryError: out of memory, the limit is 200 MB"),
        ("os.closerange(0, 100)", "could not report its error"),
    ],
)
def test_every_end_is_reported(body, expected):
    assert expected in run(f"import os\ndef f(): {body}", Limits(20.0, memory_mb=200)).error


FORKED = "[os.fork() for _ in range(2)]; held = b'x' * (60 * 2**20)"
MANY_THREADS = "[threading.Thread(target=time.sleep, args=(60,)).start() for _ in range(9)]"


@pytest.mark.parametrize(
    ("body", "limits", "expected"),
    [
        (
            "[os.fork() for _ in range(2)]",
            {"processes": 1},
            "the program started processes; at most 1 further processes are allowed",
        ),
        (FORKED, {"memory_mb": 150, "processes": 3}, "the program held more than 150 MB of memory"),
        (MANY_THREADS, {"threads": 8}, "the program had more than 8 threads"),
        (
            "[open(name, 'wb').write(bytes(2**22)) for name in 'abc']",
            {"scratch_mb": 8},
            "the program's files took more than 8 MB",
        ),
    ],
)
def test_a_limit_that_is_passed_is_named(body, limits, expected):
    source = f"import os, threading, time\nprint('begun')\ndef f():\n    {body}\n    time.sleep(30)"
    result = run(source, Limits(**{"wall_seconds": 20, **limits}))
    assert (result.error, result.log) == (expected, "begun\n")
    assert result.seconds < 20


def test_a_program_that_goes_on_too_long_is_stopped():
    def check(seconds):
        result = run("import time\nprint('begun')\ndef f(): time.sleep(60)", Limits(seconds))
        reason = f"timeout: the program exceeded {seconds:g} s"
        assert (result.error, result.log) == (reason, "begun\n")

    check_in_time(check, 0.5, 3, 12)


@pytest.mark.parametrize("end", ["return 1", "os._exit(0)", "time.sleep(600)"])
@pytest.mark.parametrize("leave", ["os.setpgid(0, 0)", "os.setsid(); os.fork() and os._exit(0)"])
def test_what_a_candidate_started_is_killed(leave, end):
    source = (
        "import os, time\n"
        "def f():\n"
        "    read_fd, write_fd = os.pipe()\n"
        "    if os.fork() == 0:\n"
        f"        {leave}\n"
        "        os.write(write_fd, b'%d' % os.getpid())\n"
        "        time.sleep(600)\n"
        "    print(int(os.read(read_fd, 99)))\n"
        f"    {end}"
    )

    def check(seconds):
        result = run(source, Limits(seconds, processes=9))
        assert result.log, result.error
        assert has_ended(int(result.log))

    check_in_time(check, *((0.5, 3, 12) if "sleep" in end else (60,)))


def test_the_scratch_folder_is_removed():
    source = "import os\ndef f(): os.makedirs('a/b'); os.chmod('a', 0); return os.getcwd()"
    assert not Path(run(source).output).exists()


def test_a_candidate_that_kills_the_process_above_it_does_not_outlive_it():
    source = (
        "import os, time\n"
        "def f():\n"
        "    print(os.getpid(), flush=True)\n"
        "    os.kill(os.getppid(), 9)\n"
        "    time.sleep(600)"
    )
    result = run(source)
    assert result.is_sandbox_fault
    assert has_ended(int(result.log))
    assert run(ONE).output == 1


def test_an_interpreter_that_was_killed_while_it_waited_is_replaced():
    with SLOTS.acquire(SINGLE_USE) as slot:
        assert run_in(slot, ONE).output == 1
        slot.await_ready()
        [prepared] = process_tree.children(slot._layer.process.pid)
        os.kill(prepared, signal.SIGKILL)
        assert becomes_true(lambda: not slot.is_alive)
    assert run(ONE).output == 1


def test_a_closed_slot_leaves_no_process_and_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    SLOTS.close()
    before = set(descendants(os.getpid()))
    slot = Slot(SINGLE_USE)
    assert run_in(slot, ONE).output == 1
    slot.close()
    assert becomes_true(lambda: set(descendants(os.getpid())) <= before)
    assert list(tmp_path.iterdir()) == []


def noting(note):
    """A candidate that notes its process and runs on."""
    return (
        "import os, time\n"
        "def f():\n"
        f"    open({str(note)!r}, 'w').write(f'{{os.getpid()}} ')\n"
        "    time.sleep(600)"
    )


def test_a_cancellation_ends_the_candidate(tmp_path):
    note = tmp_path / "pid"
    cancel_evaluations()
    try:
        with pytest.raises(InterruptedError):
            run(noting(note))
    finally:
        allow_evaluations()
    assert not note.exists() or has_ended(int(note.read_text()))
    assert run(ONE).output == 1


def test_a_candidate_dies_with_the_process_that_wanted_it(tmp_path):
    note, folder = tmp_path / "pid", tmp_path / "tmp"
    folder.mkdir()
    text = f"import test_spawn_server as tests\ntests.run({noting(note)!r})"
    with start_script(text, folder) as process:
        has_begun = becomes_true(lambda: note.exists() and note.read_text())
        process.kill()
    assert has_begun
    assert has_ended(int(note.read_text()))
    assert becomes_true(lambda: list(folder.iterdir()) == [])


@pytest.mark.parametrize("layer", [Layer.LANDLOCK, Layer.BUBBLEWRAP])
def test_the_stronger_layers_need_a_process_that_forks(layer, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RuntimeError, match="it needs a Linux kernel with pidfd_open"):
        Slot(SlotKind(layer, (), is_single_use=True))
    assert list(tmp_path.iterdir()) == []


def test_a_family_is_read_from_a_listing():
    listing = " 1 0 900\n 10 1 100\n 11 10 20\n 12 11 3\n 13 10 7\n 20 1 5000\n"
    assert process_tree.listed_family(listing, 10, without=13) == {10: 100, 11: 20, 12: 3}
    assert process_tree.listed_family(listing, 14, without=13) == {}


@needs("ps")
def test_ps_and_the_kernel_agree_on_a_family():
    with subprocess.Popen(["sleep", "60"]) as child:
        listing = subprocess.check_output(["ps", *process_tree.LISTING[1:]], text=True)
        by_ps = process_tree.listed_family(listing, os.getpid(), without=0)
        by_kernel = process_tree.family(os.getpid())
        child.kill()
    assert child.pid in by_ps
    assert child.pid in by_kernel
    assert by_ps[os.getpid()] == pytest.approx(by_kernel[os.getpid()], rel=0.1)


def test_each_command_after_a_build_starts_with_its_files_until_they_are_cleared():
    def said(words, files):
        request = {"words": words, "reads": True, "writes": True}
        built = {"is_build": bool(files), "has_built": not files}
        command = replace(request_for(files, request, []), is_command=True, **built)
        return execute(slot, command, AMPLE, AMPLE.wall_seconds).answers.rest

    with SLOTS.acquire(SINGLE_USE) as slot:
        for _ in range(2):
            assert said(["cp", "a", "b"], {"a": b"kept"}) == b""
            assert said(["rm", "b"], {}) == b""
            assert said(["cat", "a", "b"], {}) == b"keptkept"
            slot.clear()
        assert said(["ls"], {}) == b""
        slot.clear()
    assert run(ONE).output == 1
