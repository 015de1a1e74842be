"""Python code is read in many threads at once."""

import ast
import gc
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import pytest

from costada.values.python_syntax import parsed_expression, parsed_module

SOURCE = Path(ast.__file__).read_text()


class Yielding:
    """Lets other threads go on when it is collected, as a lock or a file does."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        sleep(0)


@pytest.fixture
def interrupted():
    """Threads take turns, and garbage is collected, as often as possible."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


def test_trees_that_threads_read_at_once_are_those_of_one_thread(interrupted):
    expected = ast.dump(ast.parse(SOURCE))

    def read(_):
        Yielding()
        return parsed_module(SOURCE)

    with ThreadPoolExecutor(6) as threads:
        trees = list(threads.map(read, range(30)))
    assert {ast.dump(tree) for tree in trees} == {expected}


def test_an_expression_is_one(interrupted):
    assert ast.dump(parsed_expression("a[0] + 1")) == ast.dump(ast.parse("a[0] + 1").body[0].value)
    with pytest.raises(SyntaxError, match="expected an expression"):
        parsed_expression("a = 1")


@pytest.mark.process
def test_a_forked_process_can_parse():
    with ThreadPoolExecutor(1) as threads:
        busy = [threads.submit(parsed_module, SOURCE) for _ in range(20)]
        for _ in range(5):
            if (child := os.fork()) == 0:
                os._exit(len(parsed_module("a = 1").body))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        assert all(each.result().body for each in busy)
