"""Which layer holds candidates: found by trying."""

import os
import subprocess
import sys
from contextlib import suppress

import pytest
from sandbox_runs import LAYERS, becomes_true, start_script, told_by_script, why_absent

from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer

TELL = (
    "def told(name):\n"
    "    try: print(chosen_layer(Layer(name)).value)\n"
    "    except ValueError as reason: print(reason)\n"
    "warnings.simplefilter('always', RuntimeWarning)\n"
    "warnings.showwarning = lambda text, kind, *_: print(kind.__name__, text)\n"
)
WITHOUT_LANDLOCK = (
    "import errno, pyseccomp\n"
    "rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)\n"
    "rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), 'landlock_create_ruleset')\n"
    "rules.load()\n"
)


def test_auto_is_the_strongest_that_works():
    offered = [layer for layer in LAYERS if not why_absent(layer)]
    assert chosen_layer(Layer.AUTO) is offered[-1]


@pytest.mark.parametrize("name", ["process", "none"])
def test_a_layer_that_needs_nothing_is_given_as_asked_for(name):
    assert chosen_layer(Layer(name)) is Layer(name)


def test_a_layer_is_given_as_asked_for(layer):
    assert chosen_layer(layer) is layer


def test_without_bubblewrap_it_is_refused_and_auto_is_the_next(tmp_path):
    text = f"{TELL}told('bubblewrap'); told('auto')"
    refusal, found = told_by_script(text, tmp_path, PATH=str(tmp_path)).splitlines()
    assert refusal == ("sandbox is 'bubblewrap', which does not work here: bwrap is not installed")
    assert found in ("landlock", "process")


FALSE_PROGRAMS = {
    "one that fails": "#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n",
    "one that is no program": "junk",
    "one that confines nothing": (
        '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift; exec "$@"\n'
    ),
}


@pytest.mark.parametrize("text", FALSE_PROGRAMS.values(), ids=FALSE_PROGRAMS.keys())
def test_a_bubblewrap_that_does_not_work_is_told_and_passed_over(tmp_path, text):
    program = tmp_path / "bwrap"
    program.write_text(text)
    program.chmod(0o755)
    output = told_by_script(f"{TELL}told('bubblewrap'); told('auto')", tmp_path, PATH=str(tmp_path))
    *refusal, found = output.splitlines()
    assert refusal[0].startswith("sandbox is 'bubblewrap', which does not work here: ")
    assert found in ("landlock", "process")


def test_it_does_not_matter_by_what_path_python_was_started(tmp_path):
    if reason := why_absent(Layer.BUBBLEWRAP):
        pytest.skip(reason)
    roundabout = tmp_path / os.path.relpath(sys.executable, tmp_path)
    text = f"sys.executable = {str(roundabout)!r}\n{TELL}told('bubblewrap')"
    assert told_by_script(text, tmp_path) == "bubblewrap"


def test_without_landlock_it_is_refused_and_nothing_else_needs_it(tmp_path):
    text = f"{WITHOUT_LANDLOCK}{TELL}told('landlock')"
    refusal = told_by_script(text, tmp_path)
    assert refusal.startswith("sandbox is 'landlock', which does not work here: ")
    assert "the kernel does not offer Landlock" in refusal


def test_with_neither_only_the_process_layer_is_left_and_threads_get_one_warning(tmp_path):
    text = (
        f"{WITHOUT_LANDLOCK}{TELL}"
        "found = []\n"
        "ask = lambda: found.append(chosen_layer(Layer.AUTO).value)\n"
        "threads = [threading.Thread(target=ask) for _ in range(2)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "print(*found, sep='\\n'); told('auto'); told('process')"
    )
    warning, *found = told_by_script(text, tmp_path, PATH=str(tmp_path)).splitlines()
    assert warning.startswith("RuntimeWarning sandbox: only the process layer works here")
    assert found == ["process"] * 4


def test_the_probe_leaves_nothing(tmp_path):
    text = f"{TELL}told('auto')\nprint(sorted(n for n in os.listdir(os.environ['TMPDIR'])))"
    *_, left = told_by_script(text, tmp_path).splitlines()
    assert "probe" not in left
    assert "canary" not in left
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="an option of Linux")
def test_the_process_that_embeds_us_stays_as_it_was(tmp_path):
    ask = "print([ctypes.CDLL(None).prctl(option, 0, 0, 0, 0) for option in (3, 39)])"
    text = f"import ctypes\n{ask}\nrun('def f(): return 1', chosen_layer(Layer.PROCESS))\n{ask}"
    before, after = told_by_script(text, tmp_path).splitlines()
    assert before == after == "[1, 0]"


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.3])
def test_a_process_that_is_killed_while_it_tries_a_layer_leaves_nothing(layer, seconds, tmp_path):
    with start_script(f"chosen_layer(Layer({layer.value!r}))", tmp_path) as process:
        assert becomes_true(lambda: any(tmp_path.iterdir()), 30)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.kill()
    assert becomes_true(lambda: not any(tmp_path.iterdir()), 30), list(tmp_path.iterdir())
