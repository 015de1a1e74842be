"""What a folder's own command downloads: from a server on this machine, in the sandbox."""

import os
import sys
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from costada.evaluators.environment import environment_folder
from costada.evaluators.folders import load_folder
from costada.evaluators.problem import check_problem

pytestmark = pytest.mark.process

if not sys.platform.startswith("linux"):
    pytest.skip("what the sandbox needs differs here", allow_module_level=True)

DATA = b"3\n4\n" * 50_000
DOWNLOAD = """
import os, pathlib, sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
pathlib.Path("data/deep").mkdir(parents=True)
for name in ("data/numbers.txt", "data/deep/more.txt"):
    pathlib.Path(name).write_bytes(opener.open("URL/" + name).read())
def attempt(action):
    try:
        return repr(action())
    except OSError as error:
        return "refused"
pathlib.Path("data/attempts.txt").write_text("\\n".join([
    attempt(lambda: open("SECRET").read()),
    attempt(lambda: open("FOLDER/evaluator.py", "a")),
    attempt(lambda: os.listdir("FOLDER")),
    str("OPENAI_API_KEY" in os.environ),
]))
"""
EVALUATOR = """
def evaluate(program_path):
    numbers = [int(line) for line in open("data/numbers.txt")]
    return {"combined_score": sum(numbers) / 350_000}
"""


@pytest.fixture
def server():
    """The address of a server, and the paths that it was asked for."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(DATA)))
            self.end_headers()
            self.wfile.write(DATA)

        def log_message(self, *_):
            pass

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=serving.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{serving.server_port}", asked
    serving.shutdown()
    serving.server_close()


@pytest.fixture
def folder(tmp_path, server, monkeypatch):
    """A folder that downloads its data."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "kept"))
    monkeypatch.setenv("OPENAI_API_KEY", "CANARY")
    place, secret = tmp_path / "problem", tmp_path / "secret"
    place.mkdir()
    secret.write_text("CANARY")
    script = DOWNLOAD.replace("URL", server[0]).replace("SECRET", str(secret))
    (place / "download.py").write_text(script.replace("FOLDER", str(place)))
    (place / "problem.toml").write_text('prepare = "python download.py"\npreload = []\n')
    (place / "problem.md").write_text("Do it.")
    (place / "initial_program.py").write_text("x = 1\n")
    (place / "evaluator.py").write_text(EVALUATOR)
    return place


def test_nothing_is_downloaded_until_that_is_confirmed(folder, server, invoke):
    refused = invoke("prepare", folder)
    assert refused.exit_code == 2
    assert "downloads what it needs by `python download.py`" in refused.stderr
    assert f"costada prepare {folder} --confirm" in refused.stderr
    assert (server[1], (folder / "data").exists()) == ([], False)


def test_a_command_for_a_folder_that_begins_with_a_dash_takes_it_as_a_path(
    folder, invoke, monkeypatch
):
    monkeypatch.chdir(folder.parent)
    folder.rename(folder.parent / "-dash")
    refused = invoke("prepare", "--", "-dash")
    assert "To run it: costada prepare ./-dash --confirm" in refused.stderr
    done = invoke("prepare", "./-dash", "--confirm")
    assert done.exit_code == 0, done.output


def test_declared_files_may_be_those_that_are_fetched(folder, invoke):
    with (folder / "problem.toml").open("a") as settings:
        settings.write('files = ["data/*.txt"]\n')
    for command in ("check", "run"):
        refused = invoke(command, folder)
        assert refused.exit_code == 2
        assert "has no data/*.txt, and nothing is fetched yet: costada prepare" in refused.stderr
    assert invoke("prepare", folder, "--confirm").exit_code == 0
    assert check_problem(load_folder(folder)).score == 1.0


def test_what_a_command_downloads_is_listed_and_the_folder_works(folder, server, invoke):
    done = invoke("prepare", folder, "--confirm")
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"data/numbers.txt  200,000 bytes  {sha256(DATA).hexdigest()}" in done.stdout
    assert f"data/deep/more.txt  200,000 bytes  {sha256(DATA).hexdigest()}" in done.stdout
    assert sorted(server[1]) == ["/data/deep/more.txt", "/data/numbers.txt"]
    attempts = (folder / "data" / "attempts.txt").read_text().splitlines()
    assert attempts == ["refused", "refused", "refused", "False"]
    assert (folder / "evaluator.py").read_text() == EVALUATOR
    assert not environment_folder(folder).exists()
    assert check_problem(load_folder(folder)).score == 1.0
    again = invoke("prepare", folder)
    assert (again.exit_code, len(server[1])) == (0, 2)


def test_a_file_that_is_no_longer_as_it_was_fetched_is_noticed(folder, invoke):
    assert invoke("prepare", folder, "--confirm").exit_code == 0
    numbers = folder / "data" / "numbers.txt"
    os.utime(numbers, (1, 1))
    load_folder(folder)  # written to, but the same
    numbers.write_bytes(DATA[:-2] + b"5\n")
    with pytest.raises(ValueError, match=rf"{numbers} is not as it was fetched; its SHA-256 was "):
        load_folder(folder)
    checked = invoke("check", folder)
    assert checked.exit_code == 2
    assert "fetches it again" in checked.stderr
    numbers.unlink()
    with pytest.raises(ValueError, match=rf"{numbers}, which was fetched, is missing"):
        load_folder(folder)
    assert invoke("prepare", folder, "--confirm").exit_code == 0
    assert check_problem(load_folder(folder)).score == 1.0


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("raise SystemExit('no such host')", r"failed, exit code 1:\nno such host"),
        ("open('evaluator.py', 'a').write('#')", r"changed evaluator.py; expected it to leave"),
        ("import os; os.unlink('problem.md')", r"changed problem.md; expected it to leave"),
        ("import os; os.symlink('/etc/hosts', 'hosts')", r"left no file in its working folder"),
        ("open('.hidden', 'w')", r"left no file in its working folder"),
    ],
)
def test_a_command_that_does_something_else_leaves_the_folder_as_it_is(
    folder, invoke, script, fault
):
    (folder / "download.py").write_text(script)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    refused = invoke("prepare", folder, "--confirm")
    assert refused.exit_code == 2
    assert fault.replace("\\n", "\n") in refused.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_names_with_line_ends_stay_on_their_line(folder, invoke):
    (folder / "download.py").write_text("open('a\\nNext: rm', 'w').write('1')")
    done = invoke("prepare", folder, "--confirm")
    assert done.exit_code == 0, done.output
    assert r"  a\nNext: rm  1 bytes" in done.stdout


@pytest.mark.parametrize(
    "name",
    [
        *("colorsys.py", "sitecustomize.py", "evaluator2.py", "numpy/__init__.py", "deep/a.py"),
        *("colorsys.cpython-312-x86_64-linux-gnu.so", "colorsys.abi3.so", "more.pth"),
    ],
)
def test_code_that_a_score_outside_of_the_sandbox_would_import_is_not_delivered(
    folder, tmp_path, invoke, name
):
    mark = tmp_path / "escaped"
    script = f"""
import pathlib
path = pathlib.Path({name!r})
path.parent.mkdir(exist_ok=True)
path.write_text("open({str(mark)!r}, 'w')")
pathlib.Path("data.txt").write_text("1")
"""
    (folder / "download.py").write_text(script)
    (folder / "evaluator.py").write_text("import colorsys\ndef score(output): return 1.0\n")
    (folder / "initial_program.py").write_text("def number():\n    return 4.0\n")
    with (folder / "problem.toml").open("a") as settings:
        settings.write('entry_point = "number"\n')
    before = sorted(folder.iterdir())
    refused = invoke("prepare", folder, "--confirm")
    assert refused.exit_code == 2
    assert f"left {name!r}, which Python can import; expected data alone" in refused.stderr
    assert f"put it into {folder} yourself" in refused.stderr
    assert sorted(folder.iterdir()) == before
    invoke("check", folder)
    assert not mark.exists()


@pytest.mark.parametrize("link", ["to a file", "to nothing"])
def test_a_download_takes_the_place_of_no_link_of_the_folder(folder, tmp_path, invoke, link):
    answers = tmp_path / "answers.txt"
    if link == "to a file":
        answers.write_text("42")
    (folder / "answers.txt").symlink_to(answers)
    (folder / "download.py").write_text("open('answers.txt', 'w').write('43')")
    refused = invoke("prepare", folder, "--confirm")
    assert refused.exit_code == 2
    assert f"left 'answers.txt', and {folder}/answers.txt exists" in refused.stderr
    assert (folder / "answers.txt").is_symlink()


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("", "--confirm: "),
        ('prepare = "python download.py | sh"\n', "expected a command without '|'"),
        ('prepare = "no-such-program"\n', "found no program for it in"),
    ],
)
def test_settings_without_a_command_that_can_run_are_refused(folder, invoke, setting, fault):
    (folder / "problem.toml").write_text(f"preload = []\n{setting}")
    refused = invoke("prepare", folder, "--confirm")
    assert (refused.exit_code, (folder / "data").exists()) == (2, False)
    assert fault in refused.stderr


@pytest.mark.parametrize("command", ["check", "run", "prepare"])
def test_a_script_that_is_not_in_the_folder_is_named_before_anything_runs(folder, invoke, command):
    (folder / "problem.toml").write_text('prepare = "sh tools/fetch.sh data.py"\n')
    refused = invoke(command, folder)
    assert (refused.exit_code, refused.stdout) == (2, "")
    expected = f"prepare is 'sh tools/fetch.sh data.py'; tools/fetch.sh is missing in {folder}\n"
    assert refused.stderr.endswith(expected)


def test_a_folder_that_leads_elsewhere_gets_no_file(folder, tmp_path, invoke):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder / "data").symlink_to(elsewhere)
    refused = invoke("prepare", folder, "--confirm")
    assert refused.exit_code == 2
    assert "outside of" in refused.stderr
    assert list(elsewhere.iterdir()) == []
