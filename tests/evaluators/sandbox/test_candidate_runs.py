"""What a run of a candidate gives back, in each layer."""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest
from sandbox_runs import ONE, run

from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot import SLOTS

pytestmark = pytest.mark.process


def test_plain_data_and_arrays_come_back(layer):
    source = "import numpy as np\ndef f(): return {'a': np.arange(3.0), 'b': (1, 'x', None)}"
    result = run(source, layer)
    assert (result.error, result.is_own_fault, result.is_sandbox_fault) == (None, True, False)
    assert result.output["a"].tolist() == [0.0, 1.0, 2.0]
    assert result.output["b"] == [1, "x", None]


MODULE = """from __future__ import annotations
import sys, inspect
from dataclasses import dataclass
@dataclass
class A:
    x: int
def f(): return [__name__, sys.modules[__name__].f is f, inspect.getsource(A)]
"""
TEMPORARY = """import os, tempfile
def f():
    with tempfile.NamedTemporaryFile() as file, tempfile.TemporaryDirectory() as folder:
        return [os.path.dirname(name) == os.getcwd() for name in (file.name, folder)]
"""
THREADS = """from concurrent.futures import ThreadPoolExecutor
def f():
    with ThreadPoolExecutor(4) as pool: return sum(pool.map(abs, range(-9, 0)))
"""
ASYNCIO = """import asyncio
async def g():
    await asyncio.sleep(0)
    return 5
def f(): return asyncio.run(g())
"""
OURS = "import sys\ndef f(): return [n for n in sys.modules if n.partition('.')[0] == 'costada']"
OUTPUTS = {
    "it is a real module": (MODULE, ["candidate", True, "@dataclass\nclass A:\n    x: int\n"]),
    "the main guard does not run": (f"{ONE}\nif __name__ == '__main__': raise SystemExit", 1),
    "byte order mark, coding": ("\ufeff# -*- coding: utf-8 -*-\ndef f(): return 'ü'", "ü"),
    "nothing of ours is loaded": (OURS, []),
    "temporary files are in scratch": (TEMPORARY, [True, True]),
    "standard input is empty": ("import sys\ndef f(): return sys.stdin.read()", ""),
    "threads": (THREADS, 45),
    "asyncio": (ASYNCIO, 5),
}


@pytest.mark.parametrize(("source", "expected"), OUTPUTS.values(), ids=OUTPUTS.keys())
def test_a_candidate_is_an_ordinary_program(layer, source, expected):
    assert run(source, layer).output == expected


def test_printing_is_log_and_nothing_else(layer):
    source = "import sys\ndef f():\n print('out')\n print('err', file=sys.stderr)\n return 1"
    result = run(source, layer)
    assert (result.output, result.log) == (1, "out\nerr\n")
    assert run("import os\ndef f():\n print('so far')\n os._exit(3)", layer).log == "so far\n"


def test_the_log_does_not_tell_the_scratch_directory(layer):
    result = run("import warnings\ndef f(): warnings.warn('careful')", layer)
    assert result.log.startswith("candidate.py:2: UserWarning: careful")


def test_the_log_cannot_steer_a_terminal(layer):
    source = "def f():\n print('a\\x1b[31mb\\x00\\tc\\x9b')\n raise ValueError('\\x1b]')"
    result = run(source, layer)
    assert result.log == "a\ufffd[31mb\ufffd\tc\ufffd\n"
    assert result.error.startswith("ValueError: \ufffd]")


@pytest.mark.parametrize("character", ["\x01", "\x00", '"', "\n"])
def test_no_source_of_a_permitted_size_is_too_large_to_send(layer, character):
    result = run(character * 2**20, layer)
    assert result.error is not None
    assert result.output is None


def test_what_is_preloaded_is_loaded_and_nothing_else():
    source = "import sys\ndef f(): return ['numpy' in sys.modules, 'scipy' in sys.modules]"
    assert run(source, Layer.PROCESS, preload=("numpy",)).output == [True, False]
    assert run(source, Layer.PROCESS, preload=()).output == [False, False]


def test_the_environment_holds_a_private_home_and_nothing_of_ours(layer, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-CANARY-1")
    SLOTS.close()
    environment, cwd = run(
        "import os\ndef f(): return [dict(os.environ), os.getcwd()]", layer
    ).output
    threads = {name for name in environment if name.endswith("_THREADS")}
    assert set(environment) - threads <= {"HOME", "TMPDIR", "LC_CTYPE", "PYTHONHASHSEED", "PWD"}
    assert {environment[name] for name in threads} == {"1"}
    assert environment["HOME"] == environment["TMPDIR"] == cwd


def test_sets_and_random_numbers_are_the_same_in_every_slot(layer):
    source = (
        "import random\nimport numpy as np\n"
        "def f():\n"
        "    names = [*{'north', 'east', 'south', 'west', 'up', 'down'}]\n"
        "    return [names, random.random(), np.random.random(), random.random()]"
    )
    first = run(source, layer).output
    assert run(source, layer).output == first
    SLOTS.close()
    assert run(source, layer).output == first


def test_candidates_in_several_threads_do_not_meet(layer):
    sources = [f"def f():\n    print({n})\n    return {n}" for n in range(8)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run, sources, [layer] * 8))
    assert [(r.output, r.log) for r in results] == [(n, f"{n}\n") for n in range(8)]


@pytest.mark.parametrize(
    ("program", "reason"),
    [("/no/python", "/no/python"), ("/bin/false", r"started no process .*: no output")],
)
def test_a_bad_interpreter_is_an_exception_and_no_result(tmp_path, monkeypatch, program, reason):
    SLOTS.close()
    monkeypatch.setattr(sys, "executable", program)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises((RuntimeError, FileNotFoundError), match=reason):
        run(ONE, Layer.PROCESS)
    assert list(tmp_path.iterdir()) == []


def test_a_module_that_cannot_be_preloaded_is_an_exception_that_names_it():
    with pytest.raises(RuntimeError, match=r"(?s)started no process .*No module named 'no_such_"):
        run(ONE, Layer.PROCESS, preload=("no_such_module",))


def test_an_exception_is_shown_with_the_candidates_own_frames(layer):
    source = "import json\ndef f():\n    return g()\ndef g():\n    return json.loads('[')"
    result = run(source, layer)
    assert result.output is None
    assert result.error.splitlines() == [
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 2 (char 1)",
        '  File "candidate.py", line 3, in f',
        "    return g()",
        '  File "candidate.py", line 5, in g',
        "    return json.loads('[')",
    ]


MOVES = {
    "into a subfolder": "os.mkdir('a'); os.chdir('a')",
    "into a folder that is gone": "os.mkdir('a'); os.chdir('a'); os.rmdir('../a')",
    "the source is gone": "os.remove('candidate.py')",
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
def test_a_candidate_that_moves_still_has_its_frames_shown(layer, move):
    result = run(f"import os\n{move}\ndef f():\n    raise ValueError('no')", layer)
    lines = result.error.splitlines()
    assert lines[:2] == ["ValueError: no", '  File "candidate.py", line 4, in f']
    assert result.is_own_fault


def test_a_program_that_does_not_load_names_what_is_wrong(layer):
    error = run("x = 1\ndef f(:\n", layer).error
    assert 'File "candidate.py", line 2' in error
    assert "SyntaxError: invalid syntax" in error
    for source in ("g = 1", "f = 1"):
        assert "the program defines no function f" in run(source, layer).error
    assert "unexpected keyword argument 'x'" in run("def f(): pass", layer, x=1).error


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("import sys; sys.exit(0)", "SystemExit: the program called exit (0) instead of returning"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import os; os._exit(0)", "ended its process (exit status 0) before it returned"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL before it returned"),
        ("import os; os.abort()", "killed by SIGABRT before it returned"),
        ("import ctypes; ctypes.string_at(0)", "killed by SIGSEGV before it returned; a crash in"),
        ("return f()", "RecursionError: maximum recursion depth exceeded"),
        ("return bytes(10**12)", "MemoryError: out of memory, the limit is 2048 MB"),
        ("return 1j", "ValueError: a value of type complex cannot be returned"),
        ("return undefined", "NameError: name 'undefined' is not defined"),
        ("raise ValueError('x' * 100_000)", "ValueError: xxx"),
        ("return 'x' * 5 * 10**6", "use NumPy arrays for large data"),
        ("a = []; a.append(a); return a", "nested more than 32 deep"),
    ],
)
def test_every_way_to_fail_is_a_clear_error(layer, body, expected):
    result = run(f"def f():\n    {body}", layer)
    assert expected in result.error
    assert len(result.error) < 4000
    assert (result.output, result.is_own_fault, result.is_sandbox_fault) == (None, True, False)


RESISTING = {
    "its text exits": (
        "class E(Exception):\n    def __str__(self): raise SystemExit\ndef f(): raise E"
    ),
    "its text never ends": (
        "class E(Exception):\n    def __str__(self): return str(self)\ndef f(): raise E"
    ),
    "its code has no text": (
        "class X:\n    def __repr__(self): 1 / 0\ndef f(): raise SystemExit(X())"
    ),
    "its number fails": (
        "class E(OSError):\n    errno = property(lambda self: 1 / 0)\ndef f(): raise E"
    ),
    "its trace is a loop": (
        "def f():\n    try: 1 / 0\n    except ZeroDivisionError as e: e.__cause__ = e; raise"
    ),
}


@pytest.mark.parametrize("source", RESISTING.values(), ids=RESISTING.keys())
def test_an_exception_that_resists_is_still_reported_as_one(source):
    error = run(source, Layer.PROCESS).error
    assert 'File "candidate.py"' in error or "could not report its error" in error
    assert "exit status" not in error


@pytest.mark.parametrize("entry", ["kept = []\n", ""])
@pytest.mark.parametrize("piece", ["bytes(10**6)", "[0] * 10"])
def test_memory_over_the_limit_is_reported_even_if_nothing_is_freed(entry, piece):
    inner = "" if entry else "    kept = []\n"
    source = f"{entry}def f():\n{inner}    while True: kept.append({piece})"
    error = run(source, Layer.PROCESS, Limits(wall_seconds=60, memory_mb=50)).error
    assert error.startswith("MemoryError: out of memory, the limit is 50 MB")


def test_an_error_is_reported_even_where_results_must_be_short():
    limits = Limits(wall_seconds=60, result_bytes=100)
    error = run("def f(): raise ValueError('x' * 1000)", Layer.PROCESS, limits).error
    assert error.startswith("ValueError: xxx")


def test_a_program_that_ends_while_it_answers_has_not_answered_too_much():
    source = (
        "import os, threading, time\n"
        "def write(number, data):\n"
        "    try: os.write(number, data)\n"
        "    except OSError: return\n"
        "def end():\n"
        "    time.sleep(0.2)\n"
        "    os._exit(3)\n"
        "def f():\n"
        "    threading.Thread(target=end).start()\n"
        "    for number in range(3, 20): write(number, (10**6).to_bytes(8, 'big') + b'half')\n"
        "    time.sleep(60)"
    )
    error = run(source, Layer.PROCESS).error
    assert "incomplete" in error
    assert "more than was asked for" not in error


def test_a_limit_of_years_is_no_exception():
    assert run(ONE, Layer.PROCESS, Limits(wall_seconds=3e9)).output == 1
