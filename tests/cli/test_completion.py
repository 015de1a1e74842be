import json
import os
import subprocess
import sys

import pytest
from needed_programs import needs

from costada.cli import completion
from costada.controller.methods import METHODS
from costada.controller.router import ROUTERS
from costada.evaluators.registry import problem_names

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A folder for caches in which the table of completions lies."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        completion.table()
    return folder


@pytest.fixture
def complete(cache, tmp_path, monkeypatch):
    """The completions of a command line, in a folder with runs and problems."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.chdir(tmp_path)
    for name in ("runs-out/first-1", "runs-out/first-2", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "settings.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    (tmp_path / "my-problem").mkdir()
    (tmp_path / "my-problem" / "problem.toml").write_text("")

    def run(line):
        *words, last = line.split(" ")
        return [value for value, _ in completion.completions(words, last)]

    return run


def test_commands_are_completed(complete):
    assert complete("re") == ["resume", "reconcile", "report"]
    assert complete("no-such-command ") == []


def test_formats_tables_and_trackers_are_completed(complete):
    assert complete("export runs-out/first-1 --to ") == ["csv", "parquet", "jsonl"]
    assert complete("export runs-out/first-1 --table c") == ["calls", "candidates"]
    assert complete("run x --log m") == ["mlflow"]


def test_what_a_package_registers_is_completed_as_soon_as_it_is_installed(
    complete, tmp_path, monkeypatch
):
    assert complete("run x --method for") == []
    facts = tmp_path / "installed" / "foreign-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[costada.methods]\nforeign = foreign:METHOD\n")
    monkeypatch.syspath_prepend(facts.parent)
    assert complete("run x --method for") == ["foreign"]


def test_problems_are_the_benchmarks_and_the_folders_that_hold_one(complete):
    assert set(complete("run ")) == {*problem_names(), "my-problem"}
    assert complete("run --seed 3 my") == ["my-problem"]
    assert complete("sweep --problems circle_packing,heilbronn_c") == [
        "circle_packing,heilbronn_convex"
    ]


@pytest.mark.parametrize("command", ["resume", "trace", "report", "watch", "fork"])
def test_folders_of_runs_are_completed(complete, command):
    assert complete(f"{command} ") == ["elsewhere", "runs-out/"]
    assert complete(f"{command} runs-out/f") == ["runs-out/first-1", "runs-out/first-2"]
    assert complete(f"{command} my") == []


def test_values_are_completed_after_their_option(complete):
    assert complete("run circle_packing --method ") == list(METHODS)
    assert complete("run circle_packing --router ") == list(ROUTERS)
    assert complete("run circle_packing --budget-policy h") == ["hard"]
    assert complete("run circle_packing --budget ") == []


def test_options_are_completed_once(complete):
    assert complete("run --max-i") == ["--max-iterations"]
    assert complete("run --max-iterations 3 --max-i") == []


def test_a_damaged_cache_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = completion.table()
    (stored,) = tmp_path.glob("costada/*.json")
    stored.write_text("{")
    assert completion.table() == found
    assert json.loads(stored.read_text())["commands"].keys() == found["commands"].keys()


def test_a_changed_command_of_a_plug_in_makes_the_table_out_of_date(tmp_path, monkeypatch):
    command = tmp_path / "plugins" / "mine" / "mine_command.py"
    for folder in (*completion.DECLARATIONS, "plugins/mine"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "declared.py").touch()
    monkeypatch.setattr(completion, "PACKAGE", str(tmp_path))
    before = completion._state_of_declarations()
    command.touch()
    assert completion._state_of_declarations() != before


def test_a_checkout_on_the_path_leaves_the_table_as_it_is(monkeypatch):
    before = completion._state_of_declarations()
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != completion.PACKAGE])
    assert completion._state_of_declarations() == before
    monkeypatch.syspath_prepend(completion.PACKAGE)
    assert completion._state_of_declarations() == before


def test_environments_of_a_user_do_not_replace_each_others_tables(cache, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    before = {path: path.stat().st_ino for path in cache.glob("costada/*.json")}
    own = sys.prefix
    monkeypatch.setattr(sys, "prefix", "/somewhere/else")
    completion.table()
    monkeypatch.setattr(sys, "prefix", own)
    completion.table()
    after = {path: path.stat().st_ino for path in cache.glob("costada/*.json")}
    assert len(after) == len(before) + 1
    assert before.items() <= after.items()


def write_command(folder):
    """Write the command `costada` of this interpreter."""
    command = folder / "costada"
    command.write_text(f"#!{sys.executable}\nfrom costada.cli.entry import main\nmain()\n")
    command.chmod(0o700)


def in_shell(shell, script, folder, cache):
    """Run a script of a shell in the root of the package, with the command in a folder."""
    paths = f"{folder}{os.pathsep}{os.environ['PATH']}"
    variables = {"HOME": str(folder), "PATH": paths, "XDG_CACHE_HOME": str(cache)}
    return subprocess.run(
        [shell, "-c", script],
        cwd=completion.PACKAGE,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )


def test_bash_completes_with_the_installed_script(cache, tmp_path):
    """The script is what `--install-completion` writes; bash runs it as for the TAB key."""
    write_command(tmp_path)
    script = (
        'costada --install-completion >/dev/null; source "$HOME/.bash_completions/costada.sh"\n'
        "COMP_WORDS=(costada run --method a); COMP_CWORD=3; _costada_completion costada\n"
        'echo "${COMPREPLY[@]}"'
    )
    done = in_shell("bash", script, tmp_path, cache)
    assert done.stdout == "adaevolve\n", done.stderr


@pytest.mark.parametrize(
    ("shell", "script", "expected"),
    [
        (
            "bash",
            "source share/bash-completion/completions/costada\n"
            "COMP_WORDS=(costada export r --table c); COMP_CWORD=4; _costada_completion costada\n"
            "printf '%s\\n' \"${COMPREPLY[@]}\"",
            "calls\ncandidates\n",
        ),
        pytest.param(
            "zsh",
            "words=(costada export r --table c); CURRENT=5; _arguments() { print -r -- $@ }\n"
            "source share/zsh/site-functions/_costada",
            '*: :(("calls"\n"candidates"))\n',
            marks=needs("zsh"),
        ),
        pytest.param(
            "fish",
            "source share/fish/vendor_completions.d/costada.fish\n"
            "complete -C 'costada export r --table c'",
            "calls\ncandidates\n",
            marks=needs("fish"),
        ),
    ],
)
def test_shells_complete_with_the_scripts_of_the_wheel(cache, tmp_path, shell, script, expected):
    write_command(tmp_path)
    done = in_shell(shell, script, tmp_path, cache)
    assert done.stdout == expected, done.stderr


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        ("zsh", "_arguments '*: :((\"hard\"))'\n"),
        ("fish", "hard\n"),
    ],
)
def test_zsh_and_fish_get_what_their_scripts_expect(complete, monkeypatch, capsys, shell, expected):
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "costada run p --budget-policy h")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    assert completion.answer(f"complete_{shell}")
    assert capsys.readouterr().out == expected


def test_other_shells_are_left_to_the_library():
    assert not completion.answer("complete_powershell")
    assert not completion.answer("source_bash")
