"""A trusted file is loaded in a process whose other threads import modules."""

import sys
from threading import Event, Thread
from types import ModuleType

import pytest

from costada.evaluators.trusted_module import load_trusted

MANY, LOADS = 500, 40


@pytest.fixture
def another_thread_imports():
    """Modules come and go in another thread, which gets its turn as often as possible."""
    names = [f"comes_and_goes_{number}" for number in range(MANY)]
    interval, has_ended = sys.getswitchinterval(), Event()

    def import_modules():
        while not has_ended.is_set():
            for name in names:
                sys.modules[name] = ModuleType(name)
            for name in names:
                del sys.modules[name]

    thread = Thread(target=import_modules)
    sys.setswitchinterval(1e-6)
    thread.start()
    yield
    has_ended.set()
    thread.join()
    sys.setswitchinterval(interval)


def test_a_file_is_loaded_while_another_thread_imports(tmp_path, another_thread_imports):
    (tmp_path / "neighbour.py").write_text("NUMBER = 7\n")
    own = tmp_path / "evaluator.py"
    own.write_text("from neighbour import NUMBER\n")
    assert {load_trusted(own).NUMBER for _ in range(LOADS)} == {7}
    assert "neighbour" not in sys.modules
