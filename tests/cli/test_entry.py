import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import version

import pytest

from costada.cli.main import COMMANDS
from costada.reports.status import show_status
from costada.reports.terminal import show

pytestmark = pytest.mark.process

COMMAND = "from costada.cli.entry import main; main()"
FOR_RUNS = ("asyncio", "jinja2", "langchain_core", "langgraph", "matplotlib", "numpy", "yaml")
SLOW = ("pydantic", "typer", "rich", "numpy", "langgraph")


def on_terminal(*words, script=COMMAND):
    """What a command writes to a terminal of its own, in the pieces that were read."""
    number, master = pty.fork()
    if number == 0:
        os.execv(sys.executable, [sys.executable, "-c", script, *words])
    pieces = []
    with suppress(OSError):  # how Linux says that the other end is closed
        while piece := os.read(master, 65536):
            pieces.append(piece.decode())
    os.close(master)
    os.waitpid(number, 0)
    return pieces


def test_the_first_words_of_a_run_come_before_any_library_is_loaded():
    script = (
        "import sys; from costada.reports import status\n"
        "from costada.cli import entry\n"
        "def loaded(text): print(text, [name for name in sys.modules if name in "
        f"{SLOW}]); raise SystemExit\n"
        "entry.show_status = loaded; entry.main()"
    )
    said = "".join(on_terminal("run", "circle_packing", script=script))
    assert said.split("\r\n")[0] == "Trying the evaluator ... []"


def test_the_help_lists_each_command_and_loads_none(invoke):
    stored = invoke("--help").output  # the table of the help texts is made here if need be
    script = (
        "import sys; from costada.cli.main import app\n"
        "try: app(['--help'])\n"
        "finally: print([name for name in ('pydantic', 'numpy', 'yaml') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    *lines, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    named = {line.split()[1] for line in lines if line.startswith("│ ") and line[2] != " "}
    assert set(COMMANDS) < named
    assert "Score a program as a run would." in stored


def test_the_help_of_commands_loads_no_library_that_only_runs_need():
    script = (
        "import sys; from costada.cli.main import app; from typer.main import get_command\n"
        "for name in get_command(app).commands: app([name, '--help'], standalone_mode=False)\n"
        f"print([name for name in {FOR_RUNS} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.parametrize("name", ["fork", "steer", "submit"])
def test_the_help_of_a_command_that_takes_no_settings_loads_none(name: str):
    script = (
        "import sys; from costada.cli.main import app\n"
        f"try: app([{name!r}, '--help'])\n"
        "finally: print('costada.runs.config' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "Usage:" in done.stdout
    assert done.stdout.splitlines()[-1] == "False", done.stderr


def test_the_package_is_a_command_of_the_interpreter_too():
    """Where the script is not on the path: `python -m costada`."""
    command = [sys.executable, "-m", "costada"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"costada {version('costada')}\n", "")
    done = subprocess.run([*command, "resum"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.endswith("See python -m costada --help.\n")


def test_a_misspelt_command_is_refused_with_the_right_one_in_a_plain_line(invoke):
    refused = invoke("resum")
    assert refused.exit_code == 2
    first, hint = refused.stderr.splitlines()
    assert first == "costada: No such command 'resum'. Did you mean 'resume'?"
    assert hint.endswith(" --help.")


def test_commands_are_listed_in_groups(invoke):
    text = invoke("--help").output
    headings = re.findall(r"╭─ (.+?) ─", text)
    assert headings == ["Options", "Run", "Look at runs", "Compare", "Problems", "Serve"]
    compared = text.partition("─ Compare ─")[2].partition("─ Problems ─")[0]
    assert re.findall(r"│ (\w+) ", compared)[:3] == ["sweep", "compare", "experiment"]


def test_the_help_of_a_long_command_lists_the_first_options_and_counts_the_others(invoke):
    listed, everything = (
        set(re.findall(r"│ (--[a-z-]+)", invoke("run", option).output))
        for option in ("--help", "--help-all")
    )
    assert {"--model", "--budget", "--parallel", "--out"} < listed < everything
    assert "--retry-wait" in everything - listed
    count = len(everything - listed)
    assert f"costada run --help-all lists {count} more options." in invoke("run", "--help").output


def test_the_help_of_everything_lists_each_command_with_all_its_options(invoke):
    text = invoke("--help-all").output
    usages = re.findall(r"Usage: costada (\S+) .*", text)
    assert usages[0] == "[OPTIONS]"
    assert {*COMMANDS} <= {*usages}
    assert "--retry-wait" in text.partition("Usage: costada run")[2].partition("Usage: ")[0]


def test_types_and_defaults_are_shown_as_typer_does(invoke):
    text = " ".join(invoke("run", "--help-all").output.replace("│", " ").split())
    assert "--budget FLOAT Dollars to spend" in text
    assert "[default: raise]" in text
    assert "[OPTIONS] RUN" in invoke("trace", "--help").output
    assert "[OPTIONS] RUNS..." in invoke("experiment", "--help").output
    assert "--format mermaid|png|svg" in " ".join(invoke("graph", "--help").output.split())


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
def test_completion_for_a_named_shell_is_refused(tmp_path, option):
    """Typer would ignore the word, and install the completion of the shell that calls it."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, option, "zsh"],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert done.stderr.startswith(f"costada: {option}: got 'zsh', expected nothing more")


def test_the_words_are_erased_by_what_is_printed_next():
    pieces = on_terminal("run", "no_such_problem")
    first, *rest = "".join(pieces).split("\r", 1)
    assert first == "Trying the evaluator ...\x1b[K"
    assert "\x1b[Kcostada: " in rest[0]


def test_a_pipe_gets_no_status(capfd):
    show_status("Trying the evaluator ...")
    assert capfd.readouterr() == ("", "")


def test_nothing_is_erased_where_no_status_was_shown(capfd):
    show("a line")
    assert capfd.readouterr() == ("a line\n", "")


def test_ctrl_c_before_the_command_is_loaded_ends_without_a_traceback():
    script = (
        "import signal; from costada.evaluators.sandbox.inside import kernel\n"
        "kernel.set_process_option = lambda *_: signal.raise_signal(signal.SIGINT)\n"
        f"{COMMAND}"
    )
    done = subprocess.run([sys.executable, "-c", script, "list"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
