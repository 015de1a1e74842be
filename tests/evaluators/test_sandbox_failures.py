"""Every way in which a candidate can fail is a reason that helps to mend it."""

import pytest
from sandbox_runs import AMPLE, run

from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits


def test_an_exception_is_told_with_the_candidates_own_frames(layer):
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


@pytest.mark.parametrize(
    "move",
    [
        "os.mkdir('a'); os.chdir('a')",
        "os.mkdir('a'); os.chdir('a'); os.rmdir('../a')",
        "os.remove('candidate.py')",
    ],
    ids=["into a subfolder", "into a folder that is gone", "the source is gone"],
)
def test_a_candidate_that_moves_still_has_its_frames_told(layer, move):
    result = run(f"import os\n{move}\ndef f():\n    raise ValueError('no')", layer)
    lines = result.error.splitlines()
    assert lines[:2] == ["ValueError: no", '  File "candidate.py", line 4, in f']
    assert result.is_own_fault


def test_a_syntax_error_is_told_with_its_line(layer):
    error = run("x = 1\ndef f(:\n", layer).error
    assert 'File "candidate.py", line 2' in error
    assert "SyntaxError: invalid syntax" in error


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


HARD_TO_TELL = {
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


@pytest.mark.parametrize("source", HARD_TO_TELL.values(), ids=HARD_TO_TELL.keys())
def test_an_exception_that_cannot_be_told_is_still_told_as_one(source):
    error = run(source, Layer.PROCESS).error
    assert 'File "candidate.py"' in error or "its error could not be told" in error
    assert "exit status" not in error


def test_a_missing_entry_point_is_named(layer):
    assert "the program defines no function f" in run("g = 1", layer).error
    assert "the program defines no function f" in run("f = 1", layer).error


def test_an_unexpected_argument_is_named(layer):
    assert "unexpected keyword argument 'x'" in run("def f(): pass", layer, x=1).error


@pytest.mark.parametrize("entry", ["kept = []\n", ""])
@pytest.mark.parametrize("piece", ["bytes(10**6)", "[0] * 10"])
def test_memory_over_the_limit_is_told_even_if_nothing_is_freed(entry, piece):
    inner = "" if entry else "    kept = []\n"
    source = f"{entry}def f():\n{inner}    while True: kept.append({piece})"
    error = run(source, Layer.PROCESS, Limits(wall_seconds=60, memory_mb=50)).error
    assert error.startswith("MemoryError: out of memory, the limit is 50 MB")


def test_an_error_is_told_even_where_results_must_be_short():
    limits = Limits(wall_seconds=60, result_bytes=100)
    assert run("def f(): raise ValueError('x' * 1000)", Layer.PROCESS, limits).error.startswith(
        "ValueError: xxx"
    )


def test_a_program_that_ends_while_it_answers_has_not_answered_too_much():
    source = (
        "import os, threading, time\nimport numpy as np\n"
        "def write(number, data):\n"
        "    try: os.write(number, data)\n"
        "    except OSError: return\n"
        "def f():\n"
        "    def end():\n"
        "        time.sleep(0.2)\n"
        "        os._exit(3)\n"
        "    threading.Thread(target=end).start()\n"
        "    for number in range(3, 20): write(number, (10**6).to_bytes(8, 'big') + b'half')\n"
        "    time.sleep(60)"
    )
    error = run(source, Layer.PROCESS).error
    assert "incomplete" in error
    assert "more than was asked for" not in error


def test_a_limit_of_years_is_no_exception():
    assert run("def f(): return 1", Layer.PROCESS, Limits(wall_seconds=3e9)).output == 1


def test_the_seconds_of_a_run_are_told(layer):
    result = run("import time\ndef f(): time.sleep(0.3)", layer, AMPLE)
    assert 0.3 <= result.seconds < 5
