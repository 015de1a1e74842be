"""What a run of a candidate gives back, in each layer."""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sandbox_runs import run

from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.slot import SLOTS


def test_plain_data_and_arrays_come_back(layer):
    source = "import numpy as np\ndef f(): return {'a': np.arange(3.0), 'b': (1, 'x', None)}"
    result = run(source, layer)
    assert (result.error, result.is_own_fault, result.is_sandbox_fault) == (None, True, False)
    assert result.output["a"].tolist() == [0.0, 1.0, 2.0]
    assert result.output["b"] == [1, "x", None]


def test_arguments_reach_the_entry_point(layer):
    source = "def f(xs, n): return [x * n for x in xs.tolist()]"
    assert run(source, layer, xs=np.array([1, 2]), n=3).output == [3, 6]


def test_printing_is_log_and_nothing_else(layer):
    source = "import sys\ndef f():\n print('out')\n print('err', file=sys.stderr)\n return 1"
    result = run(source, layer)
    assert (result.output, result.log) == (1, "out\nerr\n")


def test_the_log_does_not_tell_the_scratch_directory(layer):
    result = run("import warnings\ndef f(): warnings.warn('careful')", layer)
    assert result.log.startswith("candidate.py:2: UserWarning: careful")


def test_the_log_cannot_steer_a_terminal(layer):
    result = run(
        "def f():\n print('a\\x1b[31mb\\x00\\tc\\x9b')\n raise ValueError('\\x1b]')", layer
    )
    assert result.log == "a\ufffd[31mb\ufffd\tc\ufffd\n"
    assert result.error.startswith("ValueError: \ufffd]")


def test_the_log_survives_a_crash(layer):
    assert run("import os\ndef f():\n print('so far')\n os._exit(3)", layer).log == "so far\n"


def test_the_candidate_is_a_real_module(layer):
    source = (
        "from __future__ import annotations\n"
        "import sys, inspect\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass A:\n    x: int\n"
        "def f(): return [__name__, sys.modules[__name__].f is f, inspect.getsource(A)]"
    )
    assert run(source, layer).output == ["candidate", True, "@dataclass\nclass A:\n    x: int\n"]


def test_the_main_guard_does_not_run(layer):
    source = "def f(): return 1\nif __name__ == '__main__': raise SystemExit"
    assert run(source, layer).output == 1


def test_a_byte_order_mark_and_a_coding_line_are_understood(layer):
    assert run("\ufeff# -*- coding: utf-8 -*-\ndef f(): return 'ü'", layer).output == "ü"


@pytest.mark.parametrize("character", ["\x01", "\x00", '"', "\n"])
def test_no_source_of_a_permitted_size_is_too_large_to_send(layer, character):
    result = run(character * 2**20, layer)
    assert result.error is not None
    assert result.output is None


def test_nothing_of_ours_is_loaded_beside_the_candidate(layer):
    source = (
        "import sys\n"
        "def f(): return [name for name in sys.modules if name.partition('.')[0] == 'costada']"
    )
    assert run(source, layer).output == []


def test_what_is_preloaded_is_loaded_and_nothing_else():
    source = "import sys\ndef f(): return ['numpy' in sys.modules, 'scipy' in sys.modules]"
    assert run(source, Layer.PROCESS, preload=("numpy",)).output == [True, False]
    assert run(source, Layer.PROCESS, preload=()).output == [False, False]


def test_the_environment_holds_a_private_home_and_nothing_of_ours(layer, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-CANARY-1")
    SLOTS.close()
    result = run("import os\ndef f(): return [dict(os.environ), os.getcwd()]", layer)
    environment, cwd = result.output
    threads = {name for name in environment if name.endswith("_THREADS")}
    assert set(environment) - threads <= {"HOME", "TMPDIR", "LC_CTYPE", "PYTHONHASHSEED", "PWD"}
    assert {environment[name] for name in threads} == {"1"}
    assert environment["HOME"] == environment["TMPDIR"] == cwd


def test_the_order_of_a_set_of_texts_is_the_same_in_every_slot(layer):
    source = "def f(): return [*{'north', 'east', 'south', 'west', 'up', 'down'}]"
    first = run(source, layer).output
    SLOTS.close()
    assert run(source, layer).output == first


def test_random_numbers_begin_anew_in_each_run(layer):
    source = (
        "import random\nimport numpy as np\n"
        "def f(): return [random.random(), np.random.random(), random.random()]"
    )
    assert run(source, layer).output == run(source, layer).output


def test_temporary_files_work_and_lie_in_the_scratch_directory(layer):
    source = (
        "import os, tempfile\n"
        "def f():\n"
        "    with tempfile.NamedTemporaryFile() as file, tempfile.TemporaryDirectory() as folder:\n"
        "        return [os.path.dirname(name) == os.getcwd() for name in (file.name, folder)]"
    )
    assert run(source, layer).output == [True, True]


def test_standard_input_is_empty(layer):
    assert run("import sys\ndef f(): return sys.stdin.read()", layer).output == ""


def test_threads_of_a_candidate_work(layer):
    source = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def f():\n"
        "    with ThreadPoolExecutor(4) as pool: return sum(pool.map(abs, range(-9, 0)))"
    )
    assert run(source, layer).output == 45


def test_asyncio_works(layer):
    source = (
        "import asyncio\n"
        "async def g():\n    await asyncio.sleep(0)\n    return 5\n"
        "def f(): return asyncio.run(g())"
    )
    assert run(source, layer).output == 5


def test_candidates_in_several_threads_do_not_meet(layer):
    sources = [f"def f():\n    print({n})\n    return {n}" for n in range(8)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run, sources, [layer] * 8))
    assert [(r.output, r.log) for r in results] == [(n, f"{n}\n") for n in range(8)]


@pytest.mark.parametrize(
    ("program", "reason"),
    [("/no/python", "/no/python"), ("/bin/false", r"started no process .*: it said nothing")],
)
def test_a_bad_interpreter_is_an_exception_and_not_a_verdict(
    tmp_path, monkeypatch, program, reason
):
    SLOTS.close()
    monkeypatch.setattr(sys, "executable", program)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises((RuntimeError, FileNotFoundError), match=reason):
        run("def f(): return 1", Layer.PROCESS)
    assert list(tmp_path.iterdir()) == []


def test_a_module_that_cannot_be_preloaded_is_an_exception_that_names_it():
    with pytest.raises(RuntimeError, match=r"(?s)started no process .*No module named 'no_such_"):
        run("def f(): return 1", Layer.PROCESS, preload=("no_such_module",))
