"""What an evaluator declares is opened to it once the user has confirmed that, and to it alone."""

import json
import re
import shutil
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from costada.evaluators.candidate_imports import may_load_candidate
from costada.evaluators.consent import (
    ConfirmableFile,
    Needs,
    confirm,
    consent_fault,
    consent_file,
)
from costada.evaluators.folder_files import EvaluatorFile
from costada.evaluators.folder_settings import read_settings
from costada.evaluators.folders import load_folder
from costada.evaluators.problem import confine

STARTING = "import subprocess\ndef evaluate(path):\n    return {'combined_score': 1.0}\n"
NEEDS = Needs(network=("api.example.org",), keys=("EXAMPLE_KEY",))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("EXAMPLE_KEY", "secret-value")
    place = tmp_path / "problem"
    place.mkdir()
    (place / "evaluator.py").write_text(STARTING)
    return place


def evaluator_of(folder):
    return ConfirmableFile(EvaluatorFile(folder, folder / "evaluator.py"))


def fault_of(folder, needs=NEEDS):
    return consent_fault(folder, needs, evaluator_of(folder))


@pytest.mark.parametrize("needs", [Needs(), Needs(readable=("/opt/solver",))])
def test_nothing_is_asked_for_an_evaluator_that_declares_nothing(folder, needs):
    assert fault_of(folder, needs) is None


def test_a_declaration_is_refused_until_it_is_confirmed(folder):
    command = f"costada check {folder} --confirm"
    assert fault_of(folder).endswith(f"to confirm that: {command}")
    assert "api.example.org; every other address can be reached too" in fault_of(folder)
    place = confirm(folder, NEEDS, evaluator_of(folder), candidate_too=False)
    assert fault_of(folder) is None
    assert not place.is_relative_to(folder)
    assert place.stat().st_mode & 0o077 == 0
    assert "secret-value" not in place.read_text()


@pytest.mark.parametrize("change", ["declaration", "files outside", "evaluator"])
def test_what_changes_after_the_consent_is_asked_for_again(folder, change):
    confirm(folder, NEEDS, evaluator_of(folder), candidate_too=True)
    needs = NEEDS
    if change == "declaration":
        needs = Needs(network=("other.example.org",), keys=NEEDS.keys)
    elif change == "files outside":
        needs = replace(NEEDS, readable=("/opt/solver",))
        assert "beside that, to read: /opt/solver" in fault_of(folder, needs)
    else:
        (folder / "evaluator.py").write_text(STARTING + "# more\n")
    assert "has changed since you confirmed it" in fault_of(folder, needs)


def test_variables_that_are_not_set_are_named_before_and_after_the_confirmation(
    folder, monkeypatch
):
    monkeypatch.delenv("EXAMPLE_KEY")
    missing = "keys names EXAMPLE_KEY; expected variables that are set here"
    assert fault_of(folder).endswith(f" --confirm. Besides, {missing}")
    confirm(folder, NEEDS, evaluator_of(folder), candidate_too=False)
    assert fault_of(folder) == missing


def test_a_folder_cannot_confirm_itself(folder):
    confirm(folder, NEEDS, evaluator_of(folder), candidate_too=True)
    place = consent_file(folder)
    place.rename(folder / place.name)
    assert "to confirm that" in fault_of(folder)


def test_folders_of_one_name_with_a_dot_are_confirmed_apart(folder):
    folders = [folder.parent / above / "problem.v1" for above in "ab"]
    for each in folders:
        shutil.copytree(folder, each)
        confirm(each, NEEDS, evaluator_of(each), candidate_too=False)
    assert [fault_of(each) for each in folders] == [None, None]


def test_an_evaluator_that_may_import_its_candidate_needs_a_second_word(folder):
    source = "def evaluate(path): exec(open(path).read())"
    (folder / "evaluator.py").write_text(source)
    confirm(folder, NEEDS, evaluator_of(folder), candidate_too=False)
    assert fault_of(folder).endswith("--confirm --candidate-too")
    confirm(folder, NEEDS, evaluator_of(folder), candidate_too=True)
    assert fault_of(folder) is None


def test_an_import_of_what_is_neither_the_evaluators_nor_installed_may_be_the_candidate(folder):
    (folder / "helper.py").write_text("import json\n")
    (folder / "evaluator.py").write_text(
        "import sys\nfrom os.path import dirname\nsys.path.append(dirname(__file__))\n"
        "import helper, numpy, zlib\n" + STARTING
    )
    assert not evaluator_of(folder).runs_candidate()
    with (folder / "helper.py").open("a") as file:
        file.write("def load(): from copied_candidate import answer\n")
    assert evaluator_of(folder).runs_candidate()


@pytest.mark.parametrize(
    ("name", "text", "may_load"),
    [
        ("driver.js", "require(process.argv[2])\n", True),
        ("driver", "#!/usr/bin/env perl\ndo $ARGV[0];\n", True),
        ("driver", "#!/usr/bin/env python3\nprint(1)\n", False),
        ("driver.sh", "#!/bin/sh\ncat cases.txt\n", False),
        ("cases.txt", "1 2 3\n", False),
    ],
)
def test_a_program_in_another_language_beside_it_may_load_the_candidate(
    folder, name, text, may_load
):
    (folder / name).write_text(text)
    (folder / "evaluator.py").write_text(f"BESIDE = {name!r}\n{STARTING}")
    assert evaluator_of(folder).runs_candidate() == may_load


def test_a_program_that_this_user_cannot_read_loads_nothing(folder, monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(Path, "open", refuse)
    assert not may_load_candidate(folder / "driver.js")


@pytest.mark.parametrize(
    ("code", "may_run"),
    [
        ("['cargo', 'run']", True),
        ("('/usr/bin/go', 'test')", True),
        ("'cd made&&go run .'", True),
        ("'uv run -m solution'", True),
        ("{'PYTHONPATH': path}", True),
        ("['make']", False),
        ("ValueError('stack is empty')", False),
        ("'Let us go through the points. mix of both'", False),
    ],
)
def test_what_builds_and_runs_a_folder_or_finds_modules_there_may_run_the_candidate(
    folder, code, may_run
):
    (folder / "evaluator.py").write_text(f"{STARTING}def other(path): return {code}\n")
    assert evaluator_of(folder).runs_candidate() == may_run


def test_a_key_that_is_not_set_is_named(folder, monkeypatch):
    confirm(folder, NEEDS, evaluator_of(folder), candidate_too=False)
    monkeypatch.delenv("EXAMPLE_KEY")
    assert "keys names EXAMPLE_KEY" in fault_of(folder)


ASKING = """
import json, os, socket, subprocess, sys
def evaluate(path):
    with socket.create_connection(("127.0.0.1", PORT)) as found: answer = found.recv(2)
    said = subprocess.run([sys.executable, path, "PORT"], capture_output=True, text=True)
    if said.returncode: raise RuntimeError(said.stderr)
    key = os.environ["EXAMPLE_KEY"] == "secret-value"
    return {"combined_score": float(answer == b"42" and key), **json.loads(said.stdout)}
"""
TRYING = """
import json, os, socket, sys
def tried(kind):
    try: socket.socket(socket.AF_INET, kind)
    except OSError: return 0
    return 1
kinds = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}
found = {name: tried(kind) for name, kind in kinds.items()}
print(json.dumps({**found, "key": int("EXAMPLE_KEY" in os.environ)}))
"""


@pytest.mark.process
def test_an_evaluator_has_what_is_confirmed_and_its_candidate_has_not(folder, confined):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"42")

        threading.Thread(target=answer, daemon=True).start()
        (folder / "evaluator.py").write_text(ASKING.replace("PORT", str(port)))
        (folder / "problem.md").write_text("Try.")
        (folder / "initial_program.py").write_text(TRYING)
        (folder / "problem.toml").write_text(
            'network = ["api.example.org"]\nkeys = ["EXAMPLE_KEY"]\n'
        )
        with pytest.raises(ValueError, match="to confirm that: costada check"):
            load_folder(folder)
        confirm(folder, NEEDS, evaluator_of(folder), candidate_too=False)
        problem = confine(load_folder(folder), sandbox=confined)
        evaluation = problem.evaluate_program(problem.start)
    assert evaluation.error is None
    found = {name: evaluation.metrics[name] for name in ("tcp", "udp", "key")}
    assert (evaluation.score, found) == (1.0, {"tcp": 0.0, "udp": 0.0, "key": 0.0})
    (folder / "evaluator.py").write_text(STARTING)
    with pytest.raises(ValueError, match="has changed since you confirmed it"):
        problem.evaluate_program(problem.start)


@pytest.mark.process
def test_a_check_shows_what_is_opened_and_how_to_confirm_it(folder, invoke):
    (folder / "problem.md").write_text("Try.")
    (folder / "initial_program.py").write_text("x = 1\n")
    (folder / "problem.toml").write_text('keys = ["EXAMPLE_KEY"]\n')
    refused = invoke("check", folder)
    assert refused.exit_code == 2
    assert "  opens     the values of EXAMPLE_KEY\n" in refused.stdout
    said = "costada: the evaluator needs what `opens` says; to confirm that: costada check"
    assert refused.stderr == f"{said} {folder} --confirm\n"
    assert invoke("check", folder, "--confirm").exit_code == 0
    assert invoke("check", folder).exit_code == 0
    (folder / "problem.toml").write_text("")
    nothing = invoke("check", folder, "--confirm")
    assert nothing.exit_code == 2
    assert "declares nothing" in nothing.stderr


def test_what_extends_a_confirmation_confirms_nothing_alone(folder, invoke):
    refused = invoke("check", folder, "--candidate-too")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--candidate-too: expected --confirm with it" in refused.stderr
    assert not consent_file(folder).exists()


def test_a_key_that_is_set_but_empty_is_named(folder, monkeypatch):
    confirm(folder, NEEDS, evaluator_of(folder), candidate_too=False)
    monkeypatch.setenv("EXAMPLE_KEY", "")
    assert fault_of(folder) == "keys names EXAMPLE_KEY, set here but empty; expected values"


@pytest.mark.parametrize(
    "host",
    [
        *("api.example.org", "a", "localhost:8080", "my_service", "xn--mller-kva.de", "10.0.0.1"),
        *("10.0.0.1:443", "::1", "[2001:db8::1]", "[2001:db8::1]:443", "9to5.example", "a."),
    ],
)
def test_a_declared_host_may_be_a_name_or_an_address(folder, host):
    (folder / "problem.toml").write_text(f"network = [{json.dumps(host)}]\n")
    assert read_settings(folder / "problem.toml").network == (host,)


FORGED = "api.example.org\n  opens     nothing"


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        *(
            (f"network = [{json.dumps(host)}]", "network.0")
            for host in (
                *(FORGED, "", " ", "a b", "https://a.org", "a.org/path", "user@a.org", "a.org:0"),
                *("a.org:65536", "a.org:", "-a.org", "a..org", ".a", "1.2.3", "256.1.1.1", "[::1"),
                *("fe80::1%a\nb", "a\u202e", "müller.de", "*.a.org", "a" * 254, "[a.org]"),
            )
        ),
        *(
            (f"keys = [{json.dumps(name)}]", "keys.0")
            for name in (
                *(FORGED, "", "A-B", "1A", "A=B", "Ä", "LD_PRELOAD", "PYTHONPATH", "PATH", "HOME"),
                *("BASH_ENV", "NODE_OPTIONS", "PERL5LIB", "PYTHONSTARTUP"),
            )
        ),
        ('network = ["a.org", "a.org"]', "network"),
        ('keys = ["A_KEY", "A_KEY"]', "keys"),
    ],
)
def test_a_declared_name_that_is_none_is_refused(folder, invoke, setting, place):
    (folder / "problem.toml").write_text(setting + "\n")
    with pytest.raises(ValueError, match=rf"problem.toml: {place}: got .*, expected ") as refused:
        read_settings(folder / "problem.toml")
    assert "\n" not in str(refused.value)


SEEING = """
def evaluate(path):
    return {"combined_score": float(open(PATH).read() == "42")}
"""
PRIVATE = (
    "~",
    "~/note",
    "HOME",
    "PARENT",
    "~/n*",
    "LINK",
    "SECRET",
    "/root",
    "/etc",
    "/etc/passwd",
)


@pytest.fixture
def home(folder, monkeypatch):
    """A home folder with a note, a link to it, and a file elsewhere for its owner alone."""
    place = folder.parent / "homes" / "someone"
    place.mkdir(parents=True)
    (place / "note").write_text("42")
    (folder / "link").symlink_to(place / "note")
    (folder.parent / "secret").write_text("42")
    (folder.parent / "secret").chmod(0o640)
    monkeypatch.setenv("HOME", str(place))
    return place


def readable_at(home, named):
    """What a row of `PRIVATE` stands for."""
    around = home.parents[1]
    places = {"HOME": home, "PARENT": home.parent, "LINK": around / "problem" / "link"}
    return str({**places, "SECRET": around / "secret"}.get(named, named))


@pytest.mark.process
@pytest.mark.parametrize("named", PRIVATE)
@pytest.mark.parametrize("is_native", [False, True], ids=["evaluate", "score"])
def test_private_files_are_readable_once_that_is_confirmed(folder, home, invoke, named, is_native):
    pattern = readable_at(home, named)
    (folder / "problem.md").write_text("Try.")
    if is_native:
        (folder / "evaluator.py").write_text(
            "def score(output): return float(output['stdout'] == '42')\n"
        )
        read = f"open({str(home / 'note')!r}).read()"
        (folder / "initial_program.py").write_text(f"print({read}, end='')\n")
    else:
        (folder / "evaluator.py").write_text(SEEING.replace("PATH", repr(str(home / "note"))))
        (folder / "initial_program.py").write_text("x = 1\n")
    run = "run = 'python {program}'" if is_native else ""
    settings = f'readable = ["{pattern}"]\n{run}\n'
    (folder / "problem.toml").write_text(settings)
    refused = invoke("check", folder)
    assert refused.exit_code == 2
    said = f"to read, for candidates too, what may be private: {pattern}\n"
    assert said in refused.stdout
    assert refused.stderr.endswith(f"to confirm that: costada check {folder} --confirm\n")
    with pytest.raises(ValueError, match="to confirm that"):
        load_folder(folder)
    confirmed = invoke("check", folder, "--confirm")
    assert "to confirm that" not in confirmed.stderr
    reads_note = named in ("~", "~/note", "HOME", "PARENT", "~/n*", "LINK")
    problem = load_folder(folder)
    assert (problem.evaluate_program(problem.start).score == 1.0) == reads_note
    (folder / "evaluator.py").write_text((folder / "evaluator.py").read_text() + "# more\n")
    with pytest.raises(ValueError, match="has changed since you confirmed it"):
        load_folder(folder)


@pytest.mark.process
def test_what_everybody_may_read_elsewhere_is_shown_and_needs_no_word(folder, invoke):
    (folder / "problem.md").write_text("Try.")
    (folder / "initial_program.py").write_text("x = 1\n")
    place = folder.parent / "solver"
    place.mkdir()
    (folder / "problem.toml").write_text(f'readable = ["{place}", "{folder}"]\n')
    checked = invoke("check", folder)
    assert checked.exit_code == 0, checked.output
    assert f"also reads    {place}, {folder} with this folder, so that cand" in checked.stdout
    assert "  opens" not in checked.stdout


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/tmp", "/*", "/t*", "/dev", "/dev/null", "/proc", "/proc/self/environ", "/sys"),
        *("/opt/../tmp", "/usr/../../proc"),
    ],
)
def test_what_the_sandbox_has_of_its_own_is_not_readable(folder, path):
    (folder / "problem.toml").write_text(f'readable = ["{path}"]\n')
    fault = rf"problem.toml: readable has '{re.escape(path)}', which leads to /.*; expected other"
    with pytest.raises(ValueError, match=fault):
        read_settings(folder / "problem.toml")


def test_a_path_that_cannot_be_shown_is_not_readable(folder):
    (folder / "a\nb").write_text("")
    (folder / "problem.toml").write_text(f'readable = ["{folder}/a\\nb"]\n')
    with pytest.raises(ValueError, match=r"readable has .*a\\nb'; expected printable characters"):
        read_settings(folder / "problem.toml")


def test_a_native_score_declares_nothing(folder):
    (folder / "evaluator.py").write_text("def score(output): return {}\n")
    texts = {"problem.md": "Try.", "initial_program.py": "def f(): return 1\n"}
    settings = 'entry_point = "f"\nnetwork = ["a"]\n'
    for name, text in {**texts, "problem.toml": settings}.items():
        (folder / name).write_text(text)
    with pytest.raises(ValueError, match="network is"):
        load_folder(folder)


@pytest.mark.process
@pytest.mark.parametrize("layer", ["process", "none"])
@pytest.mark.parametrize("place", ["problem.toml", "the command line"])
def test_a_layer_that_keeps_candidates_from_nothing_needs_a_second_word(
    folder, invoke, layer, place
):
    (folder / "problem.md").write_text("Try.")
    (folder / "initial_program.py").write_text(TRYING)
    (folder / "evaluator.py").write_text(
        ASKING.replace('with socket.create_connection(("127.0.0.1", PORT)) as found: ', "").replace(
            "answer = found.recv(2)", "answer = b'42'"
        )
    )
    declared = 'network = ["api.example.org"]\nkeys = ["EXAMPLE_KEY"]\n'
    (folder / "problem.toml").write_text(declared)
    assert invoke("check", folder, "--confirm").exit_code == 0
    options = ["--sandbox", layer]
    if place == "problem.toml":
        options = []
        (folder / "problem.toml").write_text(f'{declared}sandbox = "{layer}"\n')
    commands = [["check", folder], ["run", folder], ["evaluate", folder, folder / "evaluator.py"]]
    for command in commands:
        refused = invoke(*command, *options)
        assert refused.exit_code == 2
        why = f"sandbox is '{layer}', which keeps no candidate from the evaluator, so"
        assert why in refused.stderr
        assert refused.stderr.rstrip().endswith(f"{folder} --confirm --candidate-too")
    checked = invoke("check", folder, *options)
    assert f"  candidate  has the evaluator's access: sandbox is '{layer}'" in checked.stdout
    with pytest.raises(ValueError, match="keeps no candidate from the evaluator"):
        confine(load_folder(folder), sandbox=layer)
    bare = replace(load_folder(folder), sandbox=layer)
    with pytest.raises(ValueError, match="keeps no candidate from the evaluator"):
        bare.evaluate_program(bare.start)
    agreed = invoke("check", folder, "--confirm", "--candidate-too", *options)
    assert agreed.exit_code == 0, agreed.output
