"""A slot ends with all that came from it, even if its candidate killed the one who sees to that."""

import os
from pathlib import Path
from threading import Thread

import pytest
from sandbox_runs import (
    WITHOUT_NAMESPACES,
    becomes_true,
    command_of,
    has_namespaces,
    run,
    told_by_script,
)

from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits

pytestmark = pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="watching strangers' processes needs Linux"
)
BRIEF = Limits(wall_seconds=3, scratch_mb=16)
KILL_WARD = "time.sleep(0.04)\n    os.kill(os.getppid(), 9)\n    time.sleep(5)"


def daemon(words: str, ending: str) -> str:
    """Return a program that starts another one, without parent or environment, and goes on."""
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


def has_process(mark: str) -> bool:
    """Return whether the command of a process other than ours holds something."""
    numbers = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    return any(mark.encode() in command_of(n) for n in numbers if n != os.getpid())


ENDS_OF_A_WARD = {
    "the program kills it": "time.sleep(0.04); os.kill(os.getppid(), 9); time.sleep(9)",
    "it and the guard are stopped": (
        "time.sleep(0.04)\n"
        "    guard = open(f'/proc/{os.getppid()}/stat').read().split()[3]\n"
        "    for number in (int(guard), os.getppid()): os.kill(number, 19)\n"
        "    time.sleep(9)"
    ),
}


@pytest.mark.parametrize("start", ["", WITHOUT_NAMESPACES], ids=["namespace", "no namespace"])
@pytest.mark.parametrize("ending", ENDS_OF_A_WARD.values(), ids=ENDS_OF_A_WARD.keys())
def test_a_daemon_without_an_environment_ends_with_its_slot(start, ending, tmp_path):
    mark = f"daemon-of-{tmp_path.name}"
    source = daemon(f"['/bin/sh', '-c', 'cd /; sleep 20; : {mark}']", ending)
    limits = "Limits(wall_seconds=1.5, processes=8)"
    text = f"{start}print(run({source!r}, Layer.PROCESS, {limits}).error is None)"
    assert told_by_script(text, tmp_path) == "False"
    assert becomes_true(lambda: not has_process(mark))


def test_a_daemon_ends_though_a_program_aims_at_all_that_is_above_it(tmp_path):
    if not has_namespaces():
        pytest.skip("no namespaces for processes here")
    mark = f"daemon-of-{tmp_path.name}"
    kill_all = "time.sleep(0.04)\n    for number in (os.getppid(), -1): os.kill(number, 9)"
    source = daemon(f"['/bin/sh', '-c', 'cd /; sleep 20; : {mark}']", kill_all)
    result = run(source, Layer.PROCESS, Limits(wall_seconds=5, processes=8))
    assert result.error is None
    assert becomes_true(lambda: not has_process(mark))


KILLED_FROM_OUTSIDE = {
    "the ward, namespace": ("", "zygotes_of(os.getpid())"),
    "the ward, no namespace": (WITHOUT_NAMESPACES, "zygotes_of(os.getpid())"),
    "the guard, namespace": (
        "",
        "[one for one in descendants(os.getpid()) if name_of(one) == process_tree.SUPERVISOR_NAME]",
    ),
}


@pytest.mark.parametrize(
    ("start", "killed"), KILLED_FROM_OUTSIDE.values(), ids=KILLED_FROM_OUTSIDE.keys()
)
def test_a_daemon_ends_when_what_is_above_it_is_killed_from_outside(start, killed, tmp_path):
    if "guard" in killed and not has_namespaces():
        pytest.skip("no namespaces for processes here")
    mark = f"daemon-of-{tmp_path.name}"
    (tmp_path / "mark").write_text(mark)
    words = "['/bin/sh', '-c', 'cd /; sleep 20; : ' + open(f'{folder}/../../mark').read()]"
    text = (
        f"{start}from sandbox_runs import *\n"
        "from test_slot_endings import has_process\n"
        f"mark = open({str(tmp_path / 'mark')!r}).read()\n"
        "def kill():\n"
        "    assert becomes_true(lambda: has_process(mark), 20)\n"
        f"    for number in {killed}: os.kill(number, 9)\n"
        "threading.Thread(target=kill).start()\n"
        f"source = {daemon(words, 'time.sleep(9)')!r}\n"
        "found = run(source, Layer.PROCESS, Limits(wall_seconds=20, processes=8))\n"
        "print(found.is_sandbox_fault)"
    )
    assert told_by_script(text, tmp_path, PYTHONPATH=str(Path(__file__).parent)) == "True"
    assert becomes_true(lambda: not has_process(mark))


WRITE_ON = "i=0; while [ $i -lt 300000 ]; do mkdir -p {folder}/d$i; i=$((i+1)); done; : writer-on"


def test_a_writer_that_outlives_its_slot_is_no_error_and_takes_no_slot():
    found = []
    source = daemon(f"['/bin/sh', '-c', f'cd /; {WRITE_ON}']", KILL_WARD)
    threads = [
        Thread(target=lambda: found.append(run(source, Layer.PROCESS, BRIEF)), daemon=True)
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    try:
        assert [result.error is not None for result in found] == [True] * 6
        assert run("def f(): return 1", Layer.PROCESS).output == 1
    finally:
        for entry in Path("/proc").glob("[0-9]*"):
            if b"writer-on" in command_of(number := int(entry.name)) and number != os.getpid():
                os.kill(number, 9)


def test_who_traces_a_candidate_does_not_hold_up_its_end():
    trace = "import ctypes, sys, time; ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), 0, 0)"
    words = f"[sys.executable, '-c', '{trace}; time.sleep(20)', str(number), 'tracer-of-one']"
    limits = Limits(wall_seconds=2, processes=4)
    result = run(daemon(words, "time.sleep(60)"), Layer.PROCESS, limits)
    assert result.error == "timeout: the program exceeded 2 s"
    assert not result.is_sandbox_fault
    assert becomes_true(lambda: not has_process("tracer-of-one"))


def test_each_folder_of_a_shallow_tree_is_listed_once_when_it_is_removed(tmp_path):
    for number in range(50):
        (tmp_path / "tree" / str(number) / "below").mkdir(parents=True)
    text = (
        "from costada.evaluators.sandbox.inside.scratch_folder import SlotFolder\n"
        "listed = []\n"
        "sys.addaudithook(lambda name, _: name == 'os.scandir' and listed.append(name))\n"
        f"SlotFolder({str(tmp_path / 'tree')!r}).remove()\n"
        "print(len(listed))"
    )
    assert told_by_script(text, tmp_path) == "51"
    assert not (tmp_path / "tree").exists()


def test_a_tree_that_is_wide_and_deep_is_removed(tmp_path):
    for number in range(5):
        wide = tmp_path / "tree" / "/".join(str(number) * 20)
        for name in ("a/b", "c"):
            (wide / name).mkdir(parents=True)
        (wide.parents[9] / "file").write_text("x")
    text = (
        "from costada.evaluators.sandbox.inside.scratch_folder import SlotFolder\n"
        f"SlotFolder({str(tmp_path / 'tree')!r}).remove()"
    )
    assert told_by_script(text, tmp_path) == ""
    assert not (tmp_path / "tree").exists()
