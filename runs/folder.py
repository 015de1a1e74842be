"""The folder of one run: its settings, who may use it, and whose it is."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from costada.evaluators.registry import is_built_in
from costada.evaluators.remote.engine import is_local
from costada.evaluators.sandbox.layers import UNCONFINED
from costada.models.providers import KEY_VARIABLES, is_loopback
from costada.nodes.generator_command import is_command
from costada.runs.config import RENAMED, STORED, RunConfig
from costada.runs.folder_lease import held_since, hold_lease, is_held
from costada.runs.user_input import explain
from costada.store.address import StorePlace, format_error
from costada.store.earlier_formats import can_migrate
from costada.store.file_upgrade import backup_of, upgrade_notice
from costada.store.files import create_text, make_folder, read_text, replace_folder, replace_text
from costada.store.schema import FORMAT
from costada.store.sqlite_engine import upgrade_file
from costada.values.candidate import Program
from costada.values.path_words import path_word
from costada.values.setting import OBJECT_MARK

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

THREAD: RunnableConfig = {"configurable": {"thread_id": "run"}}
"""The thread of the checkpoints of a run in a folder."""

OPENAI = "openai"
DEFAULT_PARENT = Path("runs-out")
OWNER = "stored-run.json"
"""File in the folder of a run in Postgres that names the run whose files are there."""

LOG = logging.getLogger("costada.runs")

DATABASE_MAGIC = b"SQLite format 3\0"

BEST_PROGRAM = "best_program"
PER_PROCESS_FOLDERS = (("proc",), ("dev", "fd"))
"""Folders whose content differs between processes."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run; the names of the files in it are part of the public format."""

    path: Path

    @property
    def name(self) -> str:
        """The name of the run for clients and in logs."""
        return self.path.name

    @property
    def place(self) -> str:
        """What messages and commands call the run."""
        return str(self.path)

    @property
    def run_file(self) -> Path:
        """The file of checkpoints, candidates and the call log, where they are in the folder."""
        return self.path / "run.sqlite"

    @property
    def database(self) -> StorePlace:
        """Checkpoints, candidates and the call log."""
        return self.run_file

    @property
    def thread(self) -> RunnableConfig:
        """The thread of the run's checkpoints."""
        return THREAD

    @property
    def settings(self) -> Path:
        """The configuration of the run."""
        return self.path / "settings.json"

    @property
    def steps(self) -> Path:
        """The trace, one JSON row per iteration."""
        return self.path / "steps.jsonl"

    @property
    def best_program(self) -> Path:
        """The incumbent: a file with the ending of the start, or a folder of several files."""
        found = sorted(self.path.glob(f"{BEST_PROGRAM}.*"))
        whole = self.path / BEST_PROGRAM
        return whole if whole.exists() or not found else found[0]

    def write_best_program(self, program: Program, ending: str) -> None:
        """Replace the incumbent; raises `OSError` if it cannot be written."""
        if program.is_one_text:
            replace_text(self.path / f"{BEST_PROGRAM}{ending}", program.text)
        else:
            replace_folder(self.path / BEST_PROGRAM, program)

    @property
    def pareto(self) -> Path:
        """The programs of the Pareto front, in a run with several objectives."""
        return self.path / "pareto"

    @property
    def report(self) -> Path:
        """The page of the run."""
        return self.path / "report.html"

    @property
    def row(self) -> Path:
        """What an index shows of the run once it has finished."""
        return self.path / "row.json"

    @property
    def log(self) -> Path:
        """Standard error of a failed run of a sweep, in a file beside the folder."""
        return self.path.with_name(f"{self.path.name}.log")

    def keeps(self, path: Path) -> bool:
        """Whether a path is that of a file that the run itself reads or writes."""
        own = (self.settings, self.steps, self.best_program, self.pareto, self.report, self.row)
        # Only the folder is resolved: an output replaces a link of its name and does not follow it.
        is_here = path.absolute().parent.resolve() == self.path.resolve()
        names = {each.name for each in own}
        # SQLite keeps its own files beside the run file: -wal, -shm and -journal.
        return is_here and (path.name in names or path.name.startswith(self.run_file.name))

    def check_output(self, path: Path) -> None:
        """Refuse a file that is to be written, but holds a run, or the dollars of one.

        Raises:
            ValueError: It is a file of this run or of another one, or a database, such as a purse.
        """
        beside = RunFolder(path.absolute().parent)
        is_of_another = beside.settings.is_file() and beside.keeps(path)
        if self.keeps(path):
            raise ValueError(f"--out: {path} is a file of the run; expected another name")
        if is_of_another or (path.is_file() and _is_database(path)):
            kind = "a file of another run" if is_of_another else "a database"
            raise ValueError(f"--out: {path} is {kind}; expected another name")

    @property
    def resume_command(self) -> str:
        """The command that resumes this run."""
        return f"costada resume {path_word(self.place)}"

    @property
    def claimed_at(self) -> float | None:
        """When the settings were written, in seconds since 1970 UTC; `None` if there are none."""
        try:
            return self.settings.stat().st_mtime
        except OSError:
            return None

    @property
    def is_running(self) -> bool:
        """Whether a process works on this run."""
        return is_held(self.path)

    @property
    def held_since(self) -> float | None:
        """When that process began to hold it, in seconds since 1970 UTC; 0 if nobody knows."""
        return held_since(self.path)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the run for this process, and upgrade its files to this version.

        Raises as `hold_lease` and `upgrade` do.
        """
        with hold_lease(self.path):
            for notice in self.upgrade():
                LOG.warning(notice)
            yield

    def upgrade(self) -> list[str]:
        """Upgrade run file and settings of an earlier format; returns what was done.

        The caller holds the lease, so no process of another version works on the run. One that is
        killed leaves each file as it was, or upgraded.

        Raises:
            ValueError: A file is damaged, or its format is newer or too old.
            OSError: A file cannot be written.
        """
        if not self.settings.is_file():
            return []
        config = self.load()  # which refuses what is no format
        found = json.loads(read_text(self.settings, MAX_SETTINGS))["format"]
        if found > FORMAT:
            raise format_error(self.place, found, FORMAT)
        notices = []
        if _has_content(self.run_file) and (notice := upgrade_file(self.run_file)):
            notices.append(notice)
        if found != FORMAT:
            backup = backup_of(self.settings, found)
            replace_text(backup, read_text(self.settings, MAX_SETTINGS))
            self.save(config)
            notices.append(upgrade_notice(self.settings, found, backup))
        return notices

    def next_command(self, config: RunConfig) -> str:
        """The command that resumes a run of this user, with `--trust` where it is needed."""
        return self.resume_command + (" --trust" if _risk(config) else "")

    def load(self) -> RunConfig:
        """The settings of the run; raises `ValueError` if there is none."""
        if self.path.is_file():
            beside = RunFolder(self.path.absolute().parent)
            hint = f", such as {self.path.parent}" if beside.settings.is_file() else ""
            raise ValueError(f"{self.path}: is a file, expected the folder of a run{hint}")
        if not self.settings.exists() and (self.path / OWNER).is_file():
            raise ValueError(
                f"{self.path}: its run is in Postgres; give the address that {OWNER} in it names"
            )
        return load_config(self.settings)

    @property
    def purse(self) -> str:
        """The name of the purse with which the run was to begin, empty without one."""
        is_there = self.settings.exists()
        return purse_in(read_text(self.settings, MAX_SETTINGS)) if is_there else ""

    def save(self, config: RunConfig) -> None:
        """Replace the settings; a reader sees either the old or the new ones."""
        replace_text(self.settings, config_text(config, self.purse))

    def claim(self, config: RunConfig, purse: str = "") -> None:
        """Create the folder for a new run and save its settings, and the name of its purse.

        Raises:
            ValueError: If it is the problem's folder, or holds a run or a file that the run would
                overwrite.
            OSError: If it cannot be created or written.
        """
        if str(self.path.resolve()) == config.problem:
            raise ValueError(f"{self.path}: is the problem's folder, expected another one")
        self.check_free()
        make_folder(self.path)
        try:
            # Exclusive: of two commands that claim the folder at once, one gets the error.
            create_text(self.settings, config_text(config, purse))
        except FileExistsError:
            raise ValueError(self._occupied()) from None

    def check_free(self) -> None:
        """Refuse a folder that a new run would overwrite.

        Raises:
            ValueError: Naming what is there and how to resume it.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path}: is a file, expected a folder for the run")
        if self.settings.exists():
            raise ValueError(self._occupied())
        own = (self.steps, self.best_program, self.pareto, self.report, self.row)
        for file in (self.run_file, *own):
            if file.exists():
                raise ValueError(
                    f"{file}: exists, the run would overwrite it; choose another --out"
                )

    def _occupied(self) -> str:
        return (
            f"{self.place}: already holds a run. Resume it: {self.resume_command}"
            "\nor start another one with a different --out"
        )

    def check_same(self, config: RunConfig) -> None:
        """Refuse to resume a run with other settings than it was started with.

        Raises:
            ValueError: Naming the settings that differ, or that there is no run.
        """
        saved = self.load()
        differing = [
            f"{name} was {getattr(saved, name)!r}, got {getattr(config, name)!r}"
            for name in RunConfig.model_fields
            if getattr(saved, name) != getattr(config, name)
        ]
        if differing:
            raise ValueError(f"{self.place}: started with other settings: {'; '.join(differing)}")

    def check_trusted(self) -> None:
        """Refuse settings that would run the folder's code unconfined or send an API key away.

        A run folder may come from somebody else. Everything in it is data, except a problem inside
        it, the programs in its run file if the settings request a weak sandbox, the servers
        that get the user's keys, the clusters whose answers are loaded, and the command of a
        generator; nor may it name a variable to be read as a key.

        Raises:
            ValueError: Naming the setting; also if there is no run.
        """
        self.check_own_problem()
        if risk := _risk(self.load()):
            raise ValueError(f"{self.place}: {risk}; if the run is your own, give --trust")

    def check_own_problem(self) -> None:
        """Refuse a problem that may have come with the folder; raises as `check_trusted` does."""
        self.load()
        # As it is written: loading makes the path of a folder absolute, which would hide a relative
        # one.
        named = json.loads(read_text(self.settings, MAX_SETTINGS))["problem"]
        if self._may_contain(named):
            raise ValueError(
                f"{self.settings}: problem {named!r} may have come with the run folder, and its"
                " evaluator would be executed; read that first, then give --trust (from Python:"
                " trust=True)"
            )

    def _may_contain(self, named: str) -> bool:
        """Whether a problem lies in the folder, or its path depends on the process.

        A run saves the absolute path of a problem folder, without steps upwards.
        """
        problem = Path(named)
        if is_built_in(named) or named.startswith(OBJECT_MARK):
            return False
        if not problem.is_absolute():
            return os.sep in named or problem.is_dir()
        steps = problem.parts[1:]
        # /proc/self/cwd and /dev/fd/3 are other folders in another process.
        if ".." in steps or any(steps[: len(each)] == each for each in PER_PROCESS_FOLDERS):
            return True
        # Each both with and without links, as a link on either side could lead into the folder.
        paths = (Path(os.path.normpath(problem)), problem.resolve())
        folders = (Path(os.path.normpath(self.path.absolute())), self.path.resolve())
        return any(path.is_relative_to(folder) for path in paths for folder in folders)

    def check_kept(self) -> None:
        """Refuse a folder whose run has started but is missing from its run file.

        Resuming would start it again and pay for it again. A run that was stopped before its first
        checkpoint has a run file and a best program, and no steps.

        Raises:
            ValueError: Naming the run file; also if that is damaged.
        """
        from costada.store.run_store import RunStore

        exists = _has_content(self.run_file)
        signs = [self.steps] if exists else [self.steps, self.best_program]
        sign = next(filter(_has_content, signs), None)
        if sign is None:
            return
        if exists:
            with RunStore.at(self.run_file, is_read_only=True) as store:
                if store.run_ids():
                    return
        raise ValueError(
            f"{self.run_file}: holds no run, though {sign.name} shows that one has started; put a"
            " copy of the run file in its place, or start another run with a different --out"
        )


def default_names(problem_name: str) -> Iterator[str]:
    """The names `<problem>-1`, `<problem>-2` and so on; special characters become `-`."""
    stem = re.sub(r"[^\w-]+", "-", problem_name).strip("-") or "run"
    return (f"{stem}-{number}" for number in count(1))


def unused_folder(problem_name: str, parent: Path = DEFAULT_PARENT) -> RunFolder:
    """The first folder with a default name that does not exist."""
    # Two commands may choose one name at once; `claim` gives it to the first.
    paths = (parent / name for name in default_names(problem_name))
    return RunFolder(next(path for path in paths if not path.exists()))


def _risk(config: RunConfig) -> str | None:
    """Why it is a risk to resume somebody else's run with these settings; `None`: it is none."""
    if config.sandbox in UNCONFINED:
        return (
            f"sandbox is {config.sandbox.value!r}, under which programs of the folder could do"
            " whatever you can"
        )
    if config.base_url and _is_foreign(config.base_url, OPENAI):
        return f"base_url is {config.base_url!r}, where your API key would be sent"
    if not (config.evaluate_on.startswith(OBJECT_MARK) or is_local(config.evaluate_on)):
        return (
            f"evaluate_on is {config.evaluate_on!r}, whose answers are loaded as Python objects,"
            " which can run code"
        )
    if is_command(config.generator):
        return (
            f"generator is {config.generator!r}, a command that would be run outside of a sandbox"
        )
    for entry in config.models:
        provider = entry.model.partition(":")[0]
        if entry.base_url and _is_foreign(entry.base_url, provider):
            return (
                f"base_url of model {entry.name!r} is {entry.base_url!r}, where your API key would"
                " be sent"
            )
        if entry.api_key_variable not in (None, KEY_VARIABLES.get(provider)):
            return (
                f"api_key_variable of model {entry.name!r} is {entry.api_key_variable!r}, whose"
                " content would be sent as a key"
            )
    return None


def _is_foreign(address: str, provider: str) -> bool:
    """Whether an address is neither on this machine nor the one that the user has chosen."""
    chosen = os.environ.get("OPENAI_BASE_URL") if provider == OPENAI else None
    return not is_loopback(address) and address != chosen


def _has_content(path: Path) -> bool:
    return path.is_dir() or (path.is_file() and path.stat().st_size > 0)


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(DATABASE_MAGIC)) == DATABASE_MAGIC


MAX_SETTINGS = 2**20
"""Bytes of a settings file."""

PURSE = "purse"
"""In the settings file: the purse with which the run was to begin."""


def config_text(config: RunConfig, purse: str = "") -> str:
    """A configuration as JSON, with the format of the run folder and its purse, for its file."""
    paid = {PURSE: purse} if purse else {}
    known = {"format": FORMAT, **paid, **config.model_dump(mode="json")}
    return json.dumps(known, indent=2, ensure_ascii=False) + "\n"


def purse_in(text: str) -> str:
    """The name of the purse in the saved text of a configuration, empty without one."""
    return str((_json_object(text) or {}).get(PURSE, ""))


def load_config(path: Path) -> RunConfig:
    """The configuration that was saved when a run started.

    Raises:
        ValueError: If the file does not exist, was written by another version or holds an invalid
            setting.
    """
    try:
        text = read_text(path, MAX_SETTINGS)
    except FileNotFoundError:
        raise ValueError(f"{path.parent}: holds no run (there is no {path.name} in it)") from None
    return read_config(text, path)


def read_config(text: str, place: Path | str) -> RunConfig:
    """The configuration in the saved text of one; `place` names it in messages.

    Raises:
        ValueError: If it was written by another version or holds an invalid setting.
    """
    known = _json_object(text)
    if known:
        found = known.pop("format", None)
        known.pop(PURSE, None)
        number = found if type(found) is int else 0  # a format that no version has written
        if number < FORMAT and not can_migrate(number):
            raise format_error(place, found, FORMAT)
        if number > FORMAT:  # shown as far as it is known here; whoever holds the run refuses it
            known = {name: known[name] for name in known.keys() & RunConfig.model_fields.keys()}
        known = {RENAMED.get(name, name): value for name, value in known.items()}
    try:
        # Text that is no JSON object goes to pydantic as it is, which says what is wrong with it.
        return RunConfig.model_validate_json(json.dumps(known) if known else text, context=STORED)
    except ValidationError as error:
        raise ValueError(f"{place}:\n{explain(error, RunConfig.model_fields)}") from None


def _json_object(text: str) -> dict[str, object] | None:
    try:
        known = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return known if isinstance(known, dict) else None
