"""The files that one must trust: those that `TRUST.md` lists, and no other file of ours."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import costada

pytestmark = pytest.mark.process

ROOT = Path(costada.__file__).parent
SANDBOX = "costada.evaluators.sandbox"
LISTED = re.compile(r"`([\w/]+\.py)`")
OUTSIDE = ("candidate_runs", "commands", "layer_choice")
SERVER = ("confined_build", "fork_server", "import_finders", "seccomp", "spawn_server")
SERVER_MAIN = "evaluators/sandbox/inside/server_main.py"


def imported_by(*modules: str) -> set[str]:
    """The files of ours that a fresh interpreter has loaded after importing some; no empty ones."""
    code = (
        "import json, sys\n"
        f"for name in {[f'{SANDBOX}.{name}' for name in modules]}: __import__(name)\n"
        "found = [m.__file__ for n, m in sys.modules.items() if n.partition('.')[0] == 'costada']\n"
        "print(json.dumps(found))"
    )
    found = json.loads(subprocess.check_output([sys.executable, "-c", code], text=True))
    files = {Path(path).resolve().relative_to(ROOT.resolve()) for path in found}
    return {
        str(path)
        for path in files
        if path != Path("__init__.py")
        and (path.name != "__init__.py" or "import" in (ROOT / path).read_text())
    }


def listed() -> tuple[set[str], ...]:
    """The files that the page lists for the process that wants a result, server and evaluator."""
    text = (ROOT / "evaluators/sandbox/TRUST.md").read_text()
    _, outside, server, evaluator, _ = text.split("\n## ")
    found = [
        [name for item in re.split(r"\n\d+\. ", part)[1:] for name in LISTED.findall(item)]
        for part in (outside, server, evaluator)
    ]
    assert all(len(names) == len(set(names)) for names in found)
    return tuple(map(set, found))


def test_the_process_that_wants_a_result_imports_only_what_is_listed():
    outside, server, _ = listed()
    imported = imported_by(*OUTSIDE)
    assert imported - outside <= server
    assert outside <= imported


def test_a_server_imports_only_what_is_listed_beside_what_confined_workers_call():
    outside, server, _ = listed()
    imported = imported_by(*(f"inside.{name}" for name in SERVER))
    assert imported - outside == server - {SERVER_MAIN}
    behind = imported_by("inside.candidate_process")
    at_start = imported_by("inside.server_main", "inside.seccomp")  # loaded when it is needed
    assert at_start == imported | behind | {SERVER_MAIN}


def test_what_confines_the_children_of_an_evaluator_is_listed():
    outside, server, evaluator = listed()
    assert imported_by("inside.confined_starts") - outside - server == evaluator


def test_what_confined_workers_call_imports_nothing_that_is_listed_for_the_other_process_alone():
    outside, *_ = listed()
    shared = ("codec.py", "inside/multiplexer.py", "inside/orders.py")
    known = {f"evaluators/sandbox/{name}" for name in shared}
    assert imported_by("inside.candidate_process") & outside == known
