"""Where a cgroup v2 is delegated to the trusted process, each slot has a group of its own in it."""

import os
from contextlib import suppress

import pytest
from sandbox_runs import ONE, WITHOUT_NAMESPACES, becomes_true, output_of, running
from test_leftovers import daemon, marked

from costada.evaluators.sandbox.control_group import unified_mount

pytestmark = pytest.mark.process


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


def output_inside(group, text, folder):
    """What a script prints that runs in a delegated group."""
    enter = f"open({str(group / 'main' / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
    return output_of(enter + text, folder)


@pytest.mark.parametrize("layer", ["process", "landlock", "bubblewrap"])
def test_a_slot_has_a_group_that_goes_with_it(delegated, layer, tmp_path):
    text = (
        f"layer = Layer({layer!r})\n"
        "try: chosen_layer(layer)\n"
        "except ValueError as error: print(error); sys.exit()\n"
        "from sandbox_runs import servers_of\n"
        f"assert run({ONE!r}, layer).output == 1\n"
        "groups = {open(f'/proc/{one}/cgroup').read() for one in servers_of(os.getpid())}\n"
        "print(all('/costada-' in name and '/main' not in name for name in groups), len(groups))"
    )
    output = output_inside(delegated, text, tmp_path)
    if "does not work here" in output:
        pytest.skip(output)
    assert output == "True 2"
    assert sorted(path.name for path in delegated.iterdir() if path.is_dir()) == ["main"]


def test_a_daemon_ends_though_a_program_killed_all_that_is_above_it(delegated, tmp_path):
    mark = f"daemon-of-{tmp_path.name}"
    kill = (
        "time.sleep(0.04)\n"
        "    above = int(open(f'/proc/{os.getppid()}/stat').read().split()[3])\n"
        "    for number in (above, os.getppid()): os.kill(number, 9)\n"
        "    time.sleep(9)"
    )
    limits = "Limits(wall_seconds=1.5, processes=8)"
    ask = f"run({daemon(marked(mark), kill)!r}, Layer.PROCESS, {limits}).is_sandbox_fault"
    assert output_inside(delegated, f"{WITHOUT_NAMESPACES}print({ask})", tmp_path) == "True"
    assert becomes_true(lambda: not running(mark))


def test_a_group_left_by_a_process_that_was_killed_is_removed_by_the_next(delegated, tmp_path):
    text = f"run({ONE!r}, Layer.PROCESS)\n"
    with pytest.raises(AssertionError):
        output_inside(delegated, f"{text}os.kill(os.getpid(), 9)", tmp_path)
    left = [path for path in delegated.iterdir() if path.name.startswith("costada-")]
    assert left
    output_inside(delegated, text, tmp_path)
    assert not any(path.exists() for path in left)


def error_of(source, limits, controller, group, folder):
    """The error of a candidate, in a group that bounds what a controller counts."""
    if controller not in (group / "cgroup.controllers").read_text().split():
        pytest.skip(f"the controller {controller} is not delegated here (bound to cgroup v1?)")
    text = f"print(run({source!r}, Layer.PROCESS, Limits(wall_seconds=20, {limits})).error)"
    return output_inside(group, text, folder)


def test_the_kernel_bounds_the_memory_of_a_whole_slot(delegated, tmp_path):
    source = (
        "import os, time\n"
        "def f():\n"
        "    for _ in range(3): os.fork()\n"
        "    held = b'x' * (90 * 2**20)\n"
        "    time.sleep(30)"
    )
    limits = "memory_mb=100, scratch_mb=1, processes=7"
    error = error_of(source, limits, "memory", delegated, tmp_path)
    assert error == "the program held more than 100 MB of memory"


def test_the_kernel_bounds_the_processes_of_a_slot(delegated, tmp_path):
    source = (
        "import os, time\n"
        "def f():\n"
        "    for _ in range(500):\n"
        "        try: number = os.fork()\n"
        "        except BlockingIOError: os._exit(7)\n"
        "        if number == 0: time.sleep(9); os._exit(0)"
    )
    error = error_of(source, "processes=1, threads=8", "pids", delegated, tmp_path)
    assert "exit status 7" in error or "processes" in error
