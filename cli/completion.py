"""Shell completion from a stored table, because loading all commands takes longer than a key press.

The scripts that call it are those of Typer: `costada --install-completion` installs them.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DECLARATIONS = ("cli", "runs", "controller", "evaluators/benchmarks")
"""Folders of the package in which a change makes the table out of date, beside plug-ins."""

FACTS = (".dist-info", ".egg-info")
"""How the folders end that say what an installed package registers."""

RUNS_FOLDER = "runs-out"
PROBLEM_FILES = ("problem.toml", "problem.md", "evaluator.py", "evaluate.py")
PROBLEM, RUN, PATH, TEXT = "problem", "run", "path", "text"
"""What the value of an option or argument is; `TEXT`: nothing is offered."""

PLACEHOLDER = "NAME"
"""Stands in choices for something that the user names."""

Item = tuple[str, str]
"""A completion and its explanation, which may be empty."""


def answer(instruction: str) -> bool:
    """Print completions as a script of Typer expects them; false for a shell not known here."""
    action, _, shell = instruction.partition("_")
    if action != "complete" or shell not in ("bash", "zsh", "fish"):
        return False
    if shell == "bash":
        # The script joins the words by line ends.
        place = int(os.environ.get("COMP_CWORD", "0"))
        words = os.environ.get("COMP_WORDS", "").split("\n")
        words += [""] * (place + 1 - len(words))
        items = completions(words[1:place], words[place])
        sys.stdout.write("\n".join(value for value, _ in items) + "\n")
        return True
    text = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    words = _split(text)[1:]
    last = words.pop() if words and not text.endswith(" ") else ""
    items = completions(words, last)
    if shell == "zsh":
        # An empty explanation would be shown as a dash.
        shown = "\n".join(
            f'"{_zsh(value)}":"{_zsh(text)}"' if text else f'"{_zsh(value)}"'
            for value, text in items
        )
        sys.stdout.write(f"_arguments '*: :(({shown}))'\n" if items else "_files\n")
    elif os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        raise SystemExit(not items)
    else:
        shown = "\n".join(f"{value}\t{text}" if text else value for value, text in items)
        sys.stdout.write(f"{shown}\n")
    return True


def _split(text: str) -> list[str]:
    """The words of a command line whose last quotation may be open."""
    for end in ("", '"', "'"):
        with suppress(ValueError):
            return shlex.split(text + end)
    return text.split()


def _zsh(text: str) -> str:
    escaped = text.replace('"', '""').replace("'", "''")
    return escaped.replace("$", "\\$").replace("`", "\\`").replace(":", r"\\:")


def completions(words: list[str], last: str) -> list[Item]:
    """What may stand in place of the last word, after the words before it."""
    known = table()
    commands = known["commands"]
    if not words:
        found = [(name, _first_sentence(each["help"])) for name, each in commands.items()]
        if last.startswith("-"):
            found = known["options"]
        return _beginning(found, last)
    command = commands.get(words[0])
    if command is None:
        return []
    options: Mapping[str, Any] = command["options"]
    before = options.get(words[-1]) if len(words) > 1 else None
    if before and before["value"] is not None:
        return _values(before["value"], known["problems"], last)
    if last.startswith("-"):
        given = set(words)
        return _beginning(
            [(name, each["help"]) for name, each in options.items() if name not in given], last
        )
    place, after = 0, words[1:]
    while after:
        word = after.pop(0)
        if not word.startswith("-"):
            place += 1
        elif options.get(word, {}).get("value") is not None and after:
            after.pop(0)
    kinds = command["arguments"]
    return _values(kinds[place], known["problems"], last) if place < len(kinds) else []


def _values(kind: str | list[str], problems: Iterable[str], last: str) -> list[Item]:
    if isinstance(kind, list):
        return _beginning(((name, "") for name in kind), last)
    if kind == PROBLEM:
        first, comma, rest = last.rpartition(",")
        names = [(first + comma + name, "") for name in problems if name.startswith(rest)]
        return names + list(_folders(last, _is_problem))
    if kind == RUN:
        found = list(_folders(last, _is_run))
        inside = os.path.join(RUNS_FOLDER, "")
        return found or (list(_folders(inside, _is_run)) if inside.startswith(last) else [])
    return []


def _beginning(items: Iterable[Item], start: str) -> list[Item]:
    return [(value, text) for value, text in items if value.startswith(start)]


def _is_problem(folder: str) -> bool:
    return any(os.path.exists(os.path.join(folder, name)) for name in PROBLEM_FILES)


def _is_run(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "settings.json"))


def _folders(start: str, is_wanted: Callable[[str], bool]) -> Iterator[Item]:
    """The folders that begin with a path and are wanted, or hold one that is."""
    parent, name = os.path.split(start)
    with suppress(OSError), os.scandir(os.path.expanduser(parent) or ".") as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.name.startswith(name) and entry.name[0] != "." and entry.is_dir():
                path = os.path.join(parent, entry.name)
                if is_wanted(entry.path):
                    yield path, ""
                elif _holds(entry.path, is_wanted):
                    yield os.path.join(path, ""), ""


def _holds(folder: str, is_wanted: Callable[[str], bool]) -> bool:
    with suppress(OSError), os.scandir(folder) as entries:
        return any(entry.is_dir() and is_wanted(entry.path) for entry in entries)
    return False


def table() -> dict[str, Any]:
    """The commands with their options and arguments, from the cache if that is up to date."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    environment = f"{sys.prefix} {PACKAGE}"  # has a table of its own
    name = f"completion-{zlib.crc32(environment.encode()):08x}.json"
    path = os.path.join(cache, "costada", name)
    version = [environment, *_state_of_declarations()]
    with suppress(OSError, ValueError):
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        if isinstance(found, dict) and found.get("version") == version:
            return found
    made = {"version": version, **_read_commands()}
    unfinished = f"{path}.{os.getpid()}"
    with suppress(OSError):  # completing works without a cache, only slower
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(unfinished, "w", encoding="utf-8") as file:
            json.dump(made, file)
        os.replace(unfinished, path)  # atomic: several shells may complete at once
    return made


def _state_of_declarations() -> list[int]:
    """When the newest of the files that declare commands was changed, and how many there are.

    Installed packages may declare commands too, and what options offer.
    """
    plugins = os.path.join(PACKAGE, "plugins")
    folders = [os.path.join(PACKAGE, each) for each in DECLARATIONS]
    with suppress(OSError), os.scandir(plugins) as entries:  # plug-ins can be taken away
        folders += [each.path for each in entries if each.is_dir() and each.name != "__pycache__"]
    times = [
        entry.stat().st_mtime_ns
        for folder in folders
        for entry in os.scandir(folder)
        if entry.name != "__pycache__"
    ]
    # Not the working folder and not a checkout, which are on the path for some ways to start Python
    # alone: each of them would make the table of the others out of date.
    for folder in sys.path:
        if folder in ("", PACKAGE):
            continue
        with suppress(OSError), os.scandir(folder) as entries:
            times += [each.stat().st_mtime_ns for each in entries if each.name.endswith(FACTS)]
    return [max(times), len(times)]


def _read_commands() -> dict[str, Any]:
    """Load all commands; takes about a second."""
    from typer.main import get_command

    from costada.cli.main import app
    from costada.evaluators.registry import problem_names

    root: Any = get_command(app)
    commands = {}
    for name in root.list_commands(None):
        try:
            command = root.get_command(None, name)
        except ValueError:  # of a plug-in that cannot be loaded
            continue
        shown = [each for each in command.params if not getattr(each, "hidden", False)]
        options = [each for each in shown if each.param_type_name == "option"]
        commands[name] = {
            "help": _paragraph(command.help),
            "group": command.rich_help_panel,
            "options": {
                spelling: {"help": _first_sentence(each.help), "value": _kind(each)}
                for each in options
                for spelling in (*each.opts, *each.secondary_opts)
            }
            | {"--help": {"help": "Show this message and exit.", "value": None}},
            "arguments": [_kind(each) for each in shown if each not in options],
        }
    options = [(each.opts[0], _first_sentence(each.help)) for each in root.params]
    options.append(("--help", "Show this message and exit."))
    return {"commands": commands, "options": options, "problems": list(problem_names())}


def _kind(parameter: Any) -> str | list[str] | None:
    """What the value of a parameter is, or the values to choose from; `None`: it takes none."""
    from costada.runs.config import OFFLINE, SETTINGS, setting_of

    if getattr(parameter, "is_flag", False):
        return None
    field = SETTINGS.get(parameter.name)
    if field and (names := setting_of(field).names):
        return [str(name) for name in names if PLACEHOLDER not in name]
    if parameter.name in ("model", "guide_model"):
        return [OFFLINE]
    metavar = parameter.metavar or ""
    if "|" in metavar:
        return metavar.split("|")
    if parameter.name in ("problem", "problems"):
        return PROBLEM
    if metavar in ("RUN", "DIR") and "folder of a run" in (parameter.help or "").lower():
        return RUN
    return PATH if metavar in ("DIR", "FILE") else TEXT


def _paragraph(text: str | None) -> str:
    """The first paragraph of a string, in one line."""
    return " ".join((text or "").split("\n\n")[0].split())


def _first_sentence(text: str | None) -> str:
    return _paragraph(text).split(". ")[0]
