"""Where a cgroup v2 is delegated to the trusted process, each slot has a group of its own in it."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from sandbox_runs import WITHOUT_NAMESPACES, becomes_true, told_by_script
from test_slot_endings import daemon, has_process

from costada.evaluators.sandbox.control_group import unified_mount


@pytest.fixture
def delegated():
    """A group that is delegated as systemd does it, with a group for the process that gets it."""
    mount = unified_mount()
    if mount is None:
        pytest.skip("no cgroup v2 is mounted here")
    group = mount[0] / f"costada-test-{os.getpid()}"
    try:
        (group / "main").mkdir(parents=True)
        os.setxattr(group, "user.delegate", b"1")
    except OSError as error:
        pytest.skip(f"no group can be delegated here: {error}")
    yield group
    for folder in (*group.iterdir(), group):
        with suppress(OSError):
            folder.rmdir()
    assert not group.exists()


def told_inside(group, text, folder):
    """Return what a script prints that runs in a delegated group."""
    enter = f"open({str(group / 'main' / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
    here = str(Path(__file__).parent)
    return told_by_script(enter + text, folder, PYTHONPATH=here)


@pytest.mark.parametrize("layer", ["process", "landlock", "bubblewrap"])
def test_a_slot_has_a_group_that_goes_with_it(delegated, layer, tmp_path):
    text = (
        f"layer = Layer({layer!r})\n"
        "try: chosen_layer(layer)\n"
        "except ValueError as error: print(error); sys.exit()\n"
        "from sandbox_runs import zygotes_of\n"
        "assert run('def f(): return 1', layer).output == 1\n"
        "groups = {open(f'/proc/{one}/cgroup').read() for one in zygotes_of(os.getpid())}\n"
        "print(all('/costada-' in name and '/main' not in name for name in groups), len(groups))"
    )
    told = told_inside(delegated, text, tmp_path)
    if "does not work here" in told:
        pytest.skip(told)
    assert told == "True 2"
    assert sorted(path.name for path in delegated.iterdir() if path.is_dir()) == ["main"]


def test_a_daemon_ends_though_a_program_killed_all_that_is_above_it(delegated, tmp_path):
    mark = f"daemon-of-{tmp_path.name}"
    kill = (
        "time.sleep(0.04)\n"
        "    guard = int(open(f'/proc/{os.getppid()}/stat').read().split()[3])\n"
        "    for number in (guard, os.getppid()): os.kill(number, 9)\n"
        "    time.sleep(9)"
    )
    source = daemon(f"['/bin/sh', '-c', 'cd /; sleep 20; : {mark}']", kill)
    limits = "Limits(wall_seconds=1.5, processes=8)"
    text = f"{WITHOUT_NAMESPACES}print(run({source!r}, Layer.PROCESS, {limits}).is_sandbox_fault)"
    assert told_inside(delegated, text, tmp_path) == "True"
    assert becomes_true(lambda: not has_process(mark))


def test_a_group_left_by_a_process_that_was_killed_is_removed_by_the_next(delegated, tmp_path):
    text = "run('def f(): return 1', Layer.PROCESS)\nprint(1, flush=True)\nos.kill(os.getpid(), 9)"
    with pytest.raises(AssertionError):
        told_inside(delegated, text, tmp_path)
    left = [path for path in delegated.iterdir() if path.name.startswith("costada-")]
    assert left
    told_inside(delegated, "print(run('def f(): return 1', Layer.PROCESS).output)", tmp_path)
    assert not any(path.exists() for path in left)


def needs(group, controller):
    if controller not in (group / "cgroup.controllers").read_text().split():
        pytest.skip(f"the controller {controller} is not delegated here (bound to cgroup v1?)")


def test_the_kernel_bounds_the_memory_of_a_whole_slot(delegated, tmp_path):
    needs(delegated, "memory")
    source = (
        "import os, time\n"
        "def f():\n"
        "    for _ in range(3): os.fork()\n"
        "    held = b'x' * (90 * 2**20)\n"
        "    time.sleep(30)"
    )
    limits = "Limits(wall_seconds=20, memory_mb=100, scratch_mb=1, processes=7)"
    told = told_inside(
        delegated, f"print(run({source!r}, Layer.PROCESS, {limits}).error)", tmp_path
    )
    assert told == "the program held more than 100 MB of memory"


def test_the_kernel_bounds_the_processes_of_a_slot(delegated, tmp_path):
    needs(delegated, "pids")
    source = (
        "import os, time\n"
        "def f():\n"
        "    n = 0\n"
        "    while n < 500:\n"
        "        try: number = os.fork()\n"
        "        except BlockingIOError: os._exit(7)\n"
        "        if number == 0: time.sleep(9); os._exit(0)\n"
        "        n += 1"
    )
    limits = "Limits(wall_seconds=20, processes=1, threads=8)"
    told = told_inside(
        delegated, f"print(run({source!r}, Layer.PROCESS, {limits}).error)", tmp_path
    )
    assert "exit status 7" in told or "processes" in told
