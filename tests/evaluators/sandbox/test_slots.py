"""Slots are kept warm, used by one evaluation at a time, and never too many."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest
from sandbox_runs import (
    AMPLE,
    ONE,
    PRELOAD,
    becomes_true,
    command_of,
    descendants,
    has_candidate,
    output_of,
    read_proc,
    run,
    servers_of,
)
from waiting import check_in_time

from costada.evaluators.folder_files import EvaluatorFile
from costada.evaluators.sandbox.candidate_runs import run_candidate, run_evaluator
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot import SLOTS, Pool, Slot
from costada.evaluators.sandbox.slot_kind import SlotKind

pytestmark = pytest.mark.process

WHICH = "zlib.crc32(os.getcwd().encode())"
SLOT = f"import os, time, zlib\ndef f():\n    time.sleep(0.1)\n    return {WHICH}"
KIND = SlotKind(Layer.PROCESS, ())
OTHER_KIND = SlotKind(Layer.PROCESS, ("json",))


@pytest.fixture
def pool():
    pool = Pool(max_slots=2)
    yield pool
    pool.close()


def scratches(pool, kinds):
    """The scratch folders of slots that are used one after the other."""
    names = []
    for kind in kinds:
        with pool.acquire(kind) as slot:
            names.append(slot.scratch)
    return names


def test_a_slot_is_used_again_for_its_kind_only(pool):
    first, other, again, other_again = scratches(pool, [KIND, OTHER_KIND, KIND, OTHER_KIND])
    assert (first, other) == (again, other_again)
    assert first != other


def test_a_folder_makes_a_kind_of_its_own(tmp_path):
    evaluator = f"import os, zlib\ndef evaluate(p): return {{'n': {WHICH}}}"
    (tmp_path / "evaluator.py").write_text(evaluator)
    plain = run(SLOT, Layer.PROCESS).output
    evaluator = EvaluatorFile(tmp_path, tmp_path / "evaluator.py")
    result = run_evaluator("", evaluator, AMPLE, Layer.PROCESS, PRELOAD)
    assert result.output["metrics"]["n"] != plain


def test_the_slot_idle_for_longest_makes_room_for_a_new_one(pool):
    first, *_ = scratches(pool, [KIND, OTHER_KIND, SlotKind(Layer.PROCESS, ("csv",))])
    assert not os.path.exists(os.path.dirname(first))
    assert scratches(pool, [KIND]) != [first]


def test_a_third_evaluation_waits_for_a_slot(pool):
    events = []

    def use():
        with pool.acquire(KIND):
            events.append("acquired")

    with pool.acquire(KIND), pool.acquire(KIND):
        third = threading.Thread(target=use)
        third.start()
        third.join(0.3)
        events.append("returned")
    third.join(60)
    assert events == ["returned", "acquired"]


def test_a_slot_that_does_not_start_is_not_counted(pool):
    for _ in range(3):
        kind = SlotKind(Layer.PROCESS, ("no_such_module",))
        with pytest.raises(RuntimeError), pool.acquire(kind):
            pass
    assert len(scratches(pool, [KIND])) == 1


def test_threads_work_in_several_slots_at_once_and_never_in_more_than_allowed(pool):
    run(ONE, Layer.PROCESS)  # tries the layer first, if that is due
    SLOTS.close()

    def run_there(_: int) -> object:
        return run_candidate(SLOT, "f", Limits(wall_seconds=60), layer=Layer.PROCESS, slots=pool)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(run_there, range(8)))
    assert len({result.output for result in found}) == 2
    assert len(servers_of(os.getpid())) <= 2


def test_a_fork_of_the_trusted_process_has_slots_of_its_own(tmp_path):
    text = (
        f"slot = {SLOT!r}\n"
        "before = run(slot, Layer.PROCESS).output\n"
        "read_fd, write_fd = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.write(write_fd, str(run(slot, Layer.PROCESS).output).encode())\n"
        "    sys.exit(0)\n"
        "os.wait()\n"
        "in_fork = int(os.read(read_fd, 99))\n"
        "print(in_fork != before, run(slot, Layer.PROCESS).output == before)"
    )
    assert output_of(text, tmp_path, PYTHONWARNINGS="error") == "True True"
    assert list(tmp_path.iterdir()) == []


def test_scipy_is_loaded_by_the_same_process_when_a_program_names_it_and_takes_none_of_its_time():
    source = (
        "import os, sys\n"
        "def f():\n"
        "    loaded = [name in sys.modules for name in ('numpy', 'sci' + 'py')]\n"
        "    return [os.getcwd(), *loaded]"
    )

    def check(seconds):
        SLOTS.close()
        first = run(source, Layer.PROCESS).output
        named = run(f"# with scipy\n{source}", Layer.PROCESS, Limits(seconds)).output
        later = run(source, Layer.PROCESS).output
        assert first == [first[0], True, False]
        assert named == later == [first[0], True, True]

    check_in_time(check, 0.3, 0.3, 0.3, 3)


def test_scipy_can_be_imported_by_a_program_that_does_not_name_it(layer):
    source = "import importlib\ndef f(): return importlib.import_module('sci' + 'py').__name__"
    assert run(source, layer).output == "scipy"


class Killer(threading.Thread):
    """Kills all processes of our slots as soon as a condition holds, if no program runs by then."""

    def __init__(self, when):
        super().__init__()
        self.is_in_time, self._when = False, when
        self.start()

    def run(self):
        if becomes_true(self._when):
            self._signal(signal.SIGSTOP)
            self.is_in_time = not has_candidate(os.getpid())
            self._signal(signal.SIGKILL if self.is_in_time else signal.SIGCONT)

    def _signal(self, number):
        for each in descendants(os.getpid()):
            if "server_main.py" in command_of(each):
                with suppress(ProcessLookupError):
                    os.kill(each, number)


def is_replaced(source, layer, when):
    """Whether a program runs though the processes for it are killed; False if that was too late."""
    killer = Killer(when)
    assert run(source, layer).output == 1
    killer.join()
    return killer.is_in_time


def test_a_process_that_is_killed_while_it_starts_is_replaced(layer):
    def check():
        SLOTS.close()
        return is_replaced(ONE, layer, lambda: servers_of(os.getpid()))

    assert becomes_true(check)


def num_pages(number):
    """The size of a process, which any user may see; 0 if it is gone."""
    return int((read_proc(number, "statm") or "0").split()[0])


def test_a_process_that_is_killed_while_it_loads_more_is_replaced(layer):
    def check():
        SLOTS.close()
        assert run(ONE, layer).output == 1
        [number] = servers_of(os.getpid())
        before = num_pages(number)
        return is_replaced(f"import scipy\n{ONE}", layer, lambda: num_pages(number) > 1.2 * before)

    assert becomes_true(check)


def test_a_layer_is_tried_again_whose_process_is_killed_while_it_is_tried(tmp_path):
    text = (
        "from test_slots import Killer, servers_of\n"
        "killer = Killer(lambda: servers_of(os.getpid()))\n"
        "print(chosen_layer(Layer.PROCESS).value)\n"
        "killer.join()"
    )
    assert output_of(text, tmp_path) == "process"


def test_processes_that_are_all_killed_while_they_start_are_an_error_in_words():
    SLOTS.close()
    is_over = threading.Event()

    def kill():
        while not is_over.wait(0.005):
            for number in servers_of(os.getpid()):
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        with pytest.raises(RuntimeError, match=r"sandbox: .* was killed 3 times, .* starting"):
            run(ONE, Layer.PROCESS)
    finally:
        is_over.set()
        thread.join()


def test_bubblewrap_that_is_killed_while_it_starts_leaves_no_process(monkeypatch, tmp_path):
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\nsleep 70 &\necho $! > {tmp_path}/child\nkill -9 $$\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    begun = monotonic()
    with pytest.raises(BrokenPipeError, match="killed while it was starting"):
        Slot(SlotKind(Layer.BUBBLEWRAP, ()))
    assert monotonic() - begun < 30
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    assert becomes_true(lambda: not child.exists() or ") Z " in child.read_text())
