"""Which layer confines candidates: found by trying."""

import os
import pickle
import subprocess
import sys
from contextlib import suppress
from copy import deepcopy

import pytest
from sandbox_runs import LAYERS, ONE, becomes_true, output_of, start_script, why_absent

from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import BY_STRENGTH, UNCONFINED, WITH_FILESYSTEM, Layer

pytestmark = pytest.mark.process

CHOOSE = (
    "def choose(name):\n"
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
BUBBLEWRAP_THEN_AUTO = f"{CHOOSE}choose('bubblewrap'); choose('auto')"
REFUSED = "sandbox is {!r}, which does not work here: "


def test_the_table_says_what_each_layer_does():
    facts = {
        layer: (each.strength, each.is_automatic, each.confines, each.has_limits)
        for layer in Layer
        if layer is not Layer.AUTO and (each := layer.implementation)
    }
    assert facts == {
        Layer.NONE: (0, False, False, False),
        Layer.PROCESS: (1, True, False, True),
        Layer.LANDLOCK: (2, True, True, True),
        Layer.BUBBLEWRAP: (3, True, True, True),
        Layer.CONTAINER: (3, False, True, True),
    }
    assert BY_STRENGTH == (Layer.BUBBLEWRAP, Layer.LANDLOCK, Layer.PROCESS)
    assert (UNCONFINED, WITH_FILESYSTEM) == (
        (Layer.PROCESS, Layer.NONE),
        (Layer.BUBBLEWRAP, Layer.CONTAINER),
    )


def test_a_layer_is_its_name_wherever_it_is_sent_or_stored():
    for layer in Layer:
        assert Layer(str(layer)) is pickle.loads(pickle.dumps(layer)) is deepcopy(layer) is layer
    assert [layer.value for layer in Layer] == [
        *("auto", "process", "landlock", "bubblewrap", "container", "none")
    ]


def test_auto_is_the_strongest_that_works():
    offered = [layer for layer in LAYERS if not why_absent(layer)]
    assert chosen_layer(Layer.AUTO) is offered[-1]


def test_a_layer_is_chosen_as_asked_for(layer):
    for asked in (layer, Layer.PROCESS, Layer.NONE):
        assert chosen_layer(asked) is asked


def test_without_bubblewrap_it_is_refused_and_auto_is_the_next(tmp_path):
    refusal, found = output_of(BUBBLEWRAP_THEN_AUTO, tmp_path, PATH=str(tmp_path)).splitlines()
    assert (
        refusal
        == REFUSED.format("bubblewrap") + "bwrap is not installed: apt-get install bubblewrap"
    )
    assert found in ("landlock", "process")


FALSE_PROGRAMS = {
    "one that fails": "#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n",
    "one that is not a program": "junk",
    "one that confines nothing": (
        '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift; exec "$@"\n'
    ),
}


@pytest.mark.parametrize("text", FALSE_PROGRAMS.values(), ids=FALSE_PROGRAMS.keys())
def test_a_bubblewrap_that_does_not_work_is_named_and_passed_over(tmp_path, text):
    program = tmp_path / "bwrap"
    program.write_text(text)
    program.chmod(0o755)
    *refusal, found = output_of(BUBBLEWRAP_THEN_AUTO, tmp_path, PATH=str(tmp_path)).splitlines()
    assert refusal[0].startswith(REFUSED.format("bubblewrap"))
    assert found in ("landlock", "process")


def test_it_does_not_matter_by_what_path_python_was_started(tmp_path):
    if reason := why_absent(Layer.BUBBLEWRAP):
        pytest.skip(reason)
    roundabout = tmp_path / os.path.relpath(sys.executable, tmp_path)
    text = f"sys.executable = {str(roundabout)!r}\n{CHOOSE}choose('bubblewrap')"
    assert output_of(text, tmp_path) == "bubblewrap"


def test_without_landlock_it_is_refused_and_nothing_else_needs_it(tmp_path):
    refusal = output_of(f"{WITHOUT_LANDLOCK}{CHOOSE}choose('landlock')", tmp_path)
    assert refusal.startswith(REFUSED.format("landlock"))
    assert "the kernel does not offer Landlock" in refusal


def test_with_neither_only_the_process_layer_is_left_and_threads_get_one_warning(tmp_path):
    text = (
        f"{WITHOUT_LANDLOCK}{CHOOSE}"
        "found = []\n"
        "ask = lambda: found.append(chosen_layer(Layer.AUTO).value)\n"
        "threads = [threading.Thread(target=ask) for _ in range(2)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "print(*found, sep='\\n'); choose('auto'); choose('process')"
    )
    warning, *found = output_of(text, tmp_path, PATH=str(tmp_path)).splitlines()
    assert warning.startswith("RuntimeWarning sandbox: only the process layer works here")
    assert found == ["process"] * 4


def test_the_probe_leaves_nothing(tmp_path):
    text = f"{CHOOSE}choose('auto')\nprint(sorted(n for n in os.listdir(os.environ['TMPDIR'])))"
    *_, left = output_of(text, tmp_path).splitlines()
    assert "probe" not in left
    assert "canary" not in left
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="an option of Linux")
def test_the_process_that_embeds_us_stays_as_it_was(tmp_path):
    ask = "print([ctypes.CDLL(None).prctl(option, 0, 0, 0, 0) for option in (3, 39)])"
    text = f"import ctypes\n{ask}\nrun({ONE!r}, chosen_layer(Layer.PROCESS))\n{ask}"
    before, after = output_of(text, tmp_path).splitlines()
    assert before == after == "[1, 0]"


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.3])
def test_a_process_that_is_killed_while_it_tries_a_layer_leaves_nothing(layer, seconds, tmp_path):
    with start_script(f"chosen_layer(Layer({layer.value!r}))", tmp_path) as process:
        # Its first file is one by which `tempfile` tries the folder; killed there, it would stay.
        assert becomes_true(lambda: any(tmp_path.glob("costada-*")), 30)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.kill()
    assert becomes_true(lambda: not any(tmp_path.iterdir()), 30), list(tmp_path.iterdir())
