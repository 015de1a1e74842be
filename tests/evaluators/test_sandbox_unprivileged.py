"""The sandbox works for an ordinary user too."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy
import pytest

import costada

AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all")
SCRIPT = """
import json, os, sys
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.run import run_candidate
SOURCES = {
    "answer": "def f(): return 42",
    "memory": "def f(): return open('/proc/%d/environ').read()" % os.getpid(),
    "above": "import os\\ndef f(): return os.getppid()",
    "ward": "import os\\ndef f(): return open('/proc/%d/mem' % os.getppid(), 'rb').read(1)[0]",
    "hidden": (
        "import os, time\\n"
        "def f():\\n"
        "    os.mkdir('d', 0o300)\\n"
        "    for n in range(3): open(f'd/{n}', 'wb').write(bytes(9 * 2**20))\\n"
        "    time.sleep(3)"
    ),
    "hang": "import time\\ndef f(): time.sleep(60)",
    "next": "import os\\ndef f(): return [os.getuid(), os.listdir()]",
}
def told(layer):
    try: chosen_layer(layer)
    except ValueError as reason: return str(reason)
    results = {}
    for name, source in SOURCES.items():
        limits = Limits(wall_seconds=0.3 if name == "hang" else 60, scratch_mb=10)
        result = run_candidate(source, "f", limits, layer=layer, preload=())
        results[name] = result.output if result.error is None else result.error
    return results
print(json.dumps(told(Layer(sys.argv[1]))))
"""
TRIAL = "import costada, numpy, subprocess, sys; subprocess.run([sys.executable, '-V'], check=True)"


def interpreter(environment):
    """Return an interpreter like this one that nobody may start, or None."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for program in (sys.executable, shutil.which(name, path="/usr/local/bin:/usr/bin")):
        command = [*AS_NOBODY, str(program), "-c", TRIAL]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        if done.returncode == 0:
            return program
    return None


@pytest.fixture(scope="module")
def nobody():
    """An interpreter that nobody may start, its environment, and a folder of nobody's own."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root, setpriv")
    with TemporaryDirectory() as name:
        folder, home = Path(name), Path(name) / "home"
        folder.chmod(0o755)
        home.mkdir()
        os.chown(home, 65534, 65534)
        (folder / "costada").symlink_to(Path(costada.__file__).parent)
        libraries = Path(numpy.__file__).parents[1]
        environment = {"TMPDIR": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C"}
        environment |= {"PYTHONPATH": f"{folder}:{libraries}", "PYTHONDONTWRITEBYTECODE": "1"}
        if not (program := interpreter(environment)):
            pytest.skip(f"an unprivileged user may start no interpreter with {libraries}")
        yield program, environment, home


@pytest.mark.parametrize("name", ["process", "landlock", "bubblewrap"])
def test_candidates_of_an_unprivileged_user_are_held(nobody, name):
    program, environment, home = nobody
    text = subprocess.run(
        [*AS_NOBODY, program, "-c", SCRIPT, name],
        env=environment,
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    ).stdout
    told = json.loads(text)
    if isinstance(told, str) and name != "process":
        pytest.skip(told)
    assert told["answer"] == 42
    if told["above"] <= 2:  # in a process table of its own
        assert "Errno" in told["memory"]
    assert "Errno" in told["ward"]
    assert "the limit of the program's files is 10 MB" in told["hidden"]
    assert told["hang"] == "timeout: the program exceeded 0.3 s"
    assert told["next"] == [65534, ["candidate.py"]]
    assert list(home.iterdir()) == []
