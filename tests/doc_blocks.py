"""The code blocks of a Markdown page, and what it takes to run them as a reader would.

- A `bash` block is run line by line, up to the first command that fails; a `python` block is run as
  a script.
- A block with a file name after its language (`python evaluator.py`) is written to that file.
- A `text` block is what the blocks before it printed; `...` stands for anything, and alone on a
  line for any number of lines.
- `sh` and `py` blocks need a key, a network or time and are not run: it is checked that their
  commands, options and imports exist.

All blocks of a page share one folder and come in the order of the page.
"""

import ast
import platform
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import typer
from warm import end_of_command, keyless_environment, output_of_script

from costada.cli.main import app
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\S*)(?: (\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHELL_SIGNS = set("|&;<>$`*?~")
COMMANDS = ("costada", "pytest")
"""Run without a shell, in a process that has the libraries loaded."""

OR_ITS_CODE = ' || echo "exit code $?"'
"""Ends a line whose command may fail."""

KINDS = ("bash", "python", "text", "sh", "py")
PRINTED_WITH = ("numpy", "scipy")
"""Packages whose rounding can lead a search elsewhere."""


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the file it is to be written to, and its content."""

    language: str
    file: str
    text: str

    @property
    def is_known(self) -> bool:
        return bool(self.file) or self.language in KINDS


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in their order."""
    return [Block(*found) for found in FENCE.findall(page.read_text())]


@cache
def is_as_printed() -> bool:
    """Return whether searches end here as they did where the pages were written."""
    locked = locked_for_oldest_python((ROOT / "requirements.lock").read_text())
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return False
    is_locked = all(version(name) == locked[name] for name in PRINTED_WITH)
    return is_locked and chosen_layer(Layer.AUTO) is not Layer.PROCESS


def locked_for_oldest_python(lock: str) -> dict[str, str]:
    """Return the versions in a lock file, without those that only newer Pythons get."""
    return dict(re.findall(r"^(\S+)==(\S+)(?!\S| ; python_full_version >=)", lock, re.MULTILINE))


def lines_of_shell(text: str) -> list[str]:
    """Return the commands of a block, those continued on the next line as one."""
    return text.replace("\\\n", " ").splitlines()


def output_of_line(line: str, folder: Path) -> str:
    """Return what a command prints on both streams, after checking that it ended well."""
    command = line.removesuffix(OR_ITS_CODE)
    words = shlex.split(command, comments=True)
    if not words:
        return ""
    if words[0] not in COMMANDS or SHELL_SIGNS & set(command):
        return output_of_shell(line, folder)
    said, code = end_of_command(words, folder)
    if code and command != line:
        return f"{said}exit code {code}\n"
    assert code == 0, f"{line}\n{said}"
    return said


def output_of_shell(text: str, folder: Path) -> str:
    """Return what a shell prints on both streams, after checking that it ended well."""
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=keyless_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, f"{text}\n{ran.stdout}"
    return ran.stdout


def said_by(blocks: list[Block], folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each `text` block with what the blocks since the last one printed."""
    said = ""
    for number, block in enumerate(blocks):
        if block.file:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.language == "bash":
            said += "".join(output_of_line(line, folder) for line in lines_of_shell(block.text))
        elif block.language == "python":
            script = folder / f"block_{number}.py"
            script.write_text(block.text)
            said += output_of_script(script, folder)
        elif block.language == "sh":
            check_commands(block.text)
        elif block.language == "py":
            check_imports(block.text)
        else:
            yield block.text, said
            said = ""


def check_commands(text: str) -> None:
    """Raise for a command or option of `costada` that does not exist."""
    for line in lines_of_shell(text):
        words = shlex.split(line, comments=True)
        if words and words[0] == "costada":
            known = typer.main.get_command(app).get_command(None, words[1]).params
            options = {word for word in words if word.startswith("--")}
            assert options <= {name for each in known for name in each.opts}, line


def check_imports(text: str) -> None:
    """Raise for a name that cannot be imported from `costada`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("costada"):
            for name in node.names:
                getattr(import_module(str(node.module)), name.name)


def is_shown_by(expected: str, said: str) -> bool:
    """Return whether a `text` block shows what was printed."""
    parts = [
        r"(?:.*\n)*" if line.strip() == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
        for line in lines_of(expected)
    ]
    return re.fullmatch("".join(parts), "\n".join([*lines_of(said), ""])) is not None


RACE = re.compile(r"Process group termination failed for PID \d+: \[Errno 3\]")
"""The MCP SDK warns so where a server ends by itself at the moment in which it is killed."""


def lines_of(text: str) -> list[str]:
    """Return the lines of a text without blank ends, and without blank lines around it."""
    lines = [line.rstrip() for line in text.splitlines() if not RACE.match(line)]
    filled = [number for number, line in enumerate(lines) if line]
    return lines[filled[0] : filled[-1] + 1] if filled else []
