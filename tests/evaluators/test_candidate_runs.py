"""What a run of a candidate gives back; the candidates' own wall limits are generous."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.run import run_candidate

AMPLE = Limits(wall_seconds=60)


def run(source, limits=AMPLE, **arguments):
    return run_candidate(source, "f", limits, arguments)


def test_plain_data_and_arrays_come_back():
    result = run("import numpy as np\ndef f(): return {'a': np.arange(3.0), 'b': (1, 'x', None)}")
    assert result.error is None
    assert result.output["a"].tolist() == [0.0, 1.0, 2.0]
    assert result.output["b"] == [1, "x", None]


def test_arguments_reach_the_entry_point():
    result = run("def f(xs, n): return [x * n for x in xs.tolist()]", xs=np.array([1, 2]), n=3)
    assert result.output == [3, 6]


def test_printing_is_log_and_nothing_else():
    result = run("import sys\ndef f():\n print('out')\n print('err', file=sys.stderr)\n return 1")
    assert (result.output, result.log) == (1, "out\nerr\n")


def test_the_log_does_not_tell_the_scratch_directory():
    result = run("import warnings\ndef f(): warnings.warn('careful')")
    assert result.log.startswith("candidate.py:2: UserWarning: careful")


def test_the_log_is_cut_at_its_limit():
    result = run("def f(): print('x' * 10_000)", Limits(wall_seconds=60, log_bytes=100))
    assert (result.error, result.log) == (None, "x" * 100)


def test_the_log_survives_a_crash():
    assert run("import os\ndef f():\n print('so far')\n os._exit(3)").log == "so far\n"


def test_the_candidate_is_a_real_module():
    source = (
        "from __future__ import annotations\n"
        "import sys, inspect\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass A:\n    x: int\n"
        "def f(): return [__name__, sys.modules[__name__].f is f, inspect.getsource(A)]"
    )
    assert run(source).output == ["candidate", True, "@dataclass\nclass A:\n    x: int\n"]


def test_the_main_guard_does_not_run():
    assert run("def f(): return 1\nif __name__ == '__main__': raise SystemExit").output == 1


def test_a_byte_order_mark_and_a_coding_line_are_understood():
    assert run("\ufeff# -*- coding: utf-8 -*-\ndef f(): return 'ü'").output == "ü"


def test_nothing_of_ours_is_loaded_beside_the_candidate():
    source = "import sys\ndef f(): return ['costada' in sys.modules, 'numpy' in sys.modules]"
    assert run(source).output == [False, False]


def test_the_environment_holds_a_private_home_and_nothing_of_ours(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-CANARY-1")
    result = run("import os\ndef f(): return [dict(os.environ), os.getcwd()]")
    environment, cwd = result.output
    threads = {name for name in environment if name.endswith("_THREADS")}
    assert set(environment) - threads <= {"HOME", "TMPDIR", "LC_CTYPE", "PYTHONHASHSEED"}
    assert {environment[name] for name in threads} == {"1"}
    assert environment["HOME"] == environment["TMPDIR"] == cwd


def test_the_order_of_a_set_of_texts_is_the_same_in_every_run():
    source = "def f(): return [*{'north', 'east', 'south', 'west', 'up', 'down'}]"
    assert run(source).output == run(source).output


def test_temporary_files_work_and_lie_in_the_scratch_directory():
    source = (
        "import os, tempfile\n"
        "def f():\n"
        "    with tempfile.NamedTemporaryFile() as file:\n"
        "        return os.path.dirname(file.name) == os.getcwd()"
    )
    assert run(source).output is True


def test_standard_input_is_empty():
    assert run("import sys\ndef f(): return sys.stdin.read()").output == ""


def test_an_exception_is_told_with_the_candidates_own_frames():
    result = run("import json\ndef f():\n    return g()\ndef g():\n    return json.loads('[')")
    assert result.output is None
    assert result.error.splitlines() == [
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 2 (char 1)",
        '  File "candidate.py", line 3, in f',
        "    return g()",
        '  File "candidate.py", line 5, in g',
        "    return json.loads('[')",
    ]


def test_a_syntax_error_is_told_with_its_line():
    error = run("x = 1\ndef f(:\n").error
    assert 'File "candidate.py", line 2' in error
    assert "SyntaxError: invalid syntax" in error


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("import sys; sys.exit(0)", "SystemExit: the program called exit (0) instead of returning"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import os; os._exit(0)", "ended its process (exit status 0) before it returned"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL before it returned"),
        ("import ctypes; ctypes.string_at(0)", "killed by SIGSEGV before it returned; a crash in"),
        ("return f()", "RecursionError: maximum recursion depth exceeded"),
        ("return bytes(10**12)", "MemoryError: out of memory, the limit is 2048 MB"),
        ("return 1j", "ValueError: a value of type complex cannot be returned"),
        ("return undefined", "NameError: name 'undefined' is not defined"),
        ("raise ValueError('x' * 100_000)", "ValueError: xxx"),
        ("return [0.5] * 10**6", "use NumPy arrays for large data"),
    ],
)
def test_every_way_to_fail_is_a_clear_error(body, expected):
    result = run(f"def f():\n    {body}")
    assert expected in result.error
    assert len(result.error) < 4000
    assert result.output is None


def test_an_exception_that_cannot_be_told_is_still_an_error():
    source = "class E(Exception):\n    def __str__(self): raise SystemExit\ndef f(): raise E"
    assert "<exception str() failed>" in run(source).error


def test_a_missing_entry_point_is_named():
    assert "the program defines no function f" in run("g = 1").error
    assert "the program defines no function f" in run("f = 1").error


def test_a_program_over_the_wall_limit_is_stopped():
    result = run("print('begun')\ndef f():\n    while True: pass", Limits(wall_seconds=0.8))
    assert result.error == "timeout: the program exceeded 0.8 s"
    assert result.log == "begun\n"
    assert 0.8 <= result.seconds < 5


def test_memory_over_the_limit_is_refused():
    source = "def f():\n    kept = []\n    while True: kept.append(bytes(10**6))"
    error = run(source, Limits(wall_seconds=60, memory_mb=100)).error
    assert error.startswith("MemoryError: out of memory, the limit is 100 MB")


def test_endless_printing_is_stopped():
    source = "def f():\n    while True: print('x' * 1_000_000)"
    assert run(source).error == "the program printed more than 64 MB"


def test_a_source_over_the_limit_is_not_run():
    result = run("x" * 200, Limits(wall_seconds=60, source_bytes=100))
    assert result.error == "the source has 200 bytes; expected at most 100"


def test_an_answer_over_the_limit_is_refused():
    source = "import numpy as np\ndef f(): return np.zeros(1000)"
    result = run(source, Limits(wall_seconds=60, result_bytes=4000))
    assert result.error == "the program returned more than 4000 bytes"


@pytest.mark.parametrize("forged", ["b'x'", "b'\\xff' * 100", "b'\\0' * 100", "bytes(8) + b'[]'"])
def test_an_answer_forged_on_the_result_pipe_is_refused(forged):
    source = f"import os, sys\ndef f():\n    os.write(int(sys.argv[1]), {forged})\n    os._exit(0)"
    result = run(source)
    assert result.error.startswith("malformed answer: ")
    assert result.output is None


def test_bytes_after_the_answer_are_refused():
    source = (
        "import os, sys, threading\n"
        "def f():\n"
        "    os._exit = lambda status: os.write(int(sys.argv[1]), b'more') and os.kill(0, 9)\n"
        "    return 1"
    )
    assert run(source).error == "malformed answer: message has 4 bytes too many"


def test_programs_in_several_threads_do_not_meet():
    sources = [f"def f():\n    print({n})\n    return {n}" for n in range(8)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run, sources))
    assert [(r.output, r.log) for r in results] == [(n, f"{n}\n") for n in range(8)]


def test_a_missing_interpreter_is_an_exception_and_not_a_verdict(monkeypatch):
    monkeypatch.setattr(sys, "executable", os.path.join(os.sep, "no", "python"))
    with pytest.raises(RuntimeError, match="sandbox: cannot start '/no/python'"):
        run("def f(): return 1")


def test_an_interpreter_that_ends_at_once_is_an_exception_and_not_a_verdict(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="sandbox: '/bin/false' ended with status 1 before it"):
        run("def f(): return 1")
