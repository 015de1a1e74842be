"""Slots are kept warm, lent to one evaluation at a time, and never too many."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sandbox_runs import AMPLE, PRELOAD, becomes_true, has_ended, run, told_by_script, zygotes_of

from costada.evaluators.sandbox.launch import SlotKind
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.pool import SLOTS, Pool
from costada.evaluators.sandbox.run import run_evaluator

WARD = "import os, time\ndef f():\n    time.sleep(0.2)\n    return os.getppid()"
PRELOADED = ("numpy", "scipy.optimize")
KIND = SlotKind(Layer.PROCESS, ())
OTHER_KIND = SlotKind(Layer.PROCESS, ("json",))


@pytest.fixture
def pool():
    pool = Pool(max_slots=2)
    yield pool
    pool.close()


def wards(pool, kinds):
    """Return the scratch folders of slots that are lent one after the other."""
    names = []
    for kind in kinds:
        with pool.lend(kind) as slot:
            names.append(slot.scratch)
    return names


def test_a_slot_is_used_again(pool):
    first, second = wards(pool, [KIND, KIND])
    assert first == second


def test_slots_of_different_kinds_are_kept_apart(pool):
    first, other, again, other_again = wards(pool, [KIND, OTHER_KIND, KIND, OTHER_KIND])
    assert (first, other) == (again, other_again)
    assert first != other


def test_a_folder_makes_a_kind_of_its_own(tmp_path):
    (tmp_path / "evaluator.py").write_text("import os\ndef evaluate(p): return {'n': os.getppid()}")
    plain = run("import os\ndef f(): return os.getppid()", Layer.PROCESS).output
    result = run_evaluator("", tmp_path, AMPLE, Layer.PROCESS, PRELOAD)
    assert result.output["metrics"]["n"] != plain


def test_the_slot_idle_for_longest_makes_room_for_a_new_one(pool):
    first, *_ = wards(pool, [KIND, OTHER_KIND, SlotKind(Layer.PROCESS, ("csv",))])
    assert not os.path.exists(os.path.dirname(first))
    assert wards(pool, [KIND]) != [first]


def test_a_third_borrower_waits_for_a_slot(pool):
    events = []

    def borrow():
        with pool.lend(KIND):
            events.append("lent")

    with pool.lend(KIND), pool.lend(KIND):
        third = threading.Thread(target=borrow)
        third.start()
        third.join(0.3)
        events.append("returned")
    third.join(10)
    assert events == ["returned", "lent"]


def test_a_slot_that_does_not_start_is_not_counted(pool):
    for _ in range(4):
        with pytest.raises(RuntimeError), pool.lend(SlotKind(Layer.PROCESS, ("no_such_module",))):
            pass
    assert len(wards(pool, [KIND])) == 1


def test_two_threads_work_in_two_slots_at_once():
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(run, [WARD] * 4, [Layer.PROCESS] * 4))
    assert len({result.output for result in found}) == 2


@pytest.mark.parametrize("layer", [Layer.PROCESS, Layer.LANDLOCK], indirect=True)
def test_no_more_slots_than_allowed_with_many_threads(layer):
    SLOTS.close()
    seen = []
    with ThreadPoolExecutor(8) as threads:
        futures = [threads.submit(run, WARD, layer) for _ in range(8)]
        while not all(future.done() for future in futures):
            seen.append(len(set(children(os.getpid()))))
    assert max(seen) <= max(2, os.cpu_count() or 1)


def children(pid):
    return [one for one in zygotes_of(pid) if parent_of(one) == pid]


def parent_of(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def test_a_fork_of_the_trusted_process_has_slots_of_its_own(tmp_path):
    text = (
        "ward = 'import os\\ndef f(): return os.getppid()'\n"
        "before = run(ward, Layer.PROCESS).output\n"
        "read_fd, write_fd = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.write(write_fd, str(run(ward, Layer.PROCESS).output).encode())\n"
        "    sys.exit(0)\n"
        "os.wait()\n"
        "in_fork = int(os.read(read_fd, 99))\n"
        "print(in_fork != before, run(ward, Layer.PROCESS).output == before)"
    )
    assert told_by_script(text, tmp_path, PYTHONWARNINGS="error") == "True True"
    assert list(tmp_path.iterdir()) == []


def test_two_hundred_evaluations_leave_no_descriptor(tmp_path):
    run("def f(): return 1", Layer.PROCESS, preload=())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        assert run("def f(): return 1", Layer.PROCESS, preload=()).output == 1
    assert len(os.listdir("/proc/self/fd")) == before


def test_closing_ends_the_processes(layer):
    run("def f(): return 1", layer)
    processes = zygotes_of(os.getpid())
    assert processes
    SLOTS.close()
    assert all(has_ended(pid) for pid in processes)
    assert becomes_true(lambda: not zygotes_of(os.getpid()))


def test_scipy_is_loaded_before_the_first_program_that_names_it_by_the_same_process(layer):
    SLOTS.close()
    source = (
        "import os, sys\n"
        "def f(): return [os.getppid(), *(name in sys.modules for name in ('numpy', 'sci' + 'py'))]"
    )
    programs = [source, f"# with scipy\n{source}", source]
    first, named, later = (run(each, layer, preload=PRELOADED).output for each in programs)
    assert first == [first[0], True, False]
    assert named == later == [first[0], True, True]


def test_loading_takes_no_time_from_the_program(layer):
    SLOTS.close()
    source = "import scipy.optimize\ndef f(): return 1"
    assert run(source, layer, Limits(wall_seconds=0.3), preload=PRELOADED).output == 1


def test_scipy_can_be_imported_by_a_program_that_does_not_name_it(layer):
    source = (
        "from importlib import import_module\ndef f(): return import_module('sci' + 'py').__name__"
    )
    assert run(source, layer, preload=PRELOADED).output == "scipy"
