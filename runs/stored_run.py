"""A run in a Postgres database: any machine that reaches the server can resume or read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from shutil import rmtree
from typing import TYPE_CHECKING

from costada.runs.config import RunConfig
from costada.runs.folder import (
    DEFAULT_PARENT,
    OWNER,
    RunFolder,
    config_text,
    default_names,
    purse_in,
    read_config,
)
from costada.store.address import RunAddress, check_database, check_path, is_database
from costada.store.files import create_text, make_folder, read_text
from costada.store.lease import guarded_by
from costada.store.request_marker import noted_requests
from costada.store.rows import record
from costada.store.run_store import NamedRun, RunStore
from costada.values.path_words import path_word

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

NAME = re.compile(r"[\w-][\w.=+-]*(/[\w-][\w.=+-]*)*")
"""Names are also paths below the folder of a machine's outputs."""

MAX_PART = 255
"""Bytes in the name of a folder."""


@dataclass(frozen=True, slots=True)
class StoredRun(RunFolder):
    """A run in Postgres, and the folder of this machine for its page, trace and best program.

    The database has everything that a resume needs. What is written to the folder can be written
    again from it, anywhere.
    """

    address: RunAddress

    @property
    def name(self) -> str:
        """The name of the run in the database."""
        return self.address.run

    @property
    def place(self) -> str:
        """The address without its password, as commands take it."""
        return str(self.address)

    @property
    def resume_command(self) -> str:
        """The command that resumes this run in the same folder, which has its gateway's answers."""
        command = f"costada resume {path_word(self.place)}"
        if self.path != DEFAULT_PARENT / self.address.run:
            command += f" --out {path_word(self.path)}"
        return command

    @property
    def database(self) -> RunAddress:
        """Checkpoints, candidates and the call log."""
        return self.address

    @property
    def thread(self) -> RunnableConfig:
        """The thread of the run's checkpoints."""
        return {"configurable": {"thread_id": self.address.run}}

    @property
    def requests(self) -> Path:
        """How many requests were sent from this machine, and what they can have cost."""
        return self.path / "requests.json"

    @property
    def is_running(self) -> bool:
        """Whether a process works on this run."""
        return self.held_since is not None

    @property
    def held_since(self) -> float | None:
        """When that process took it, in seconds since 1970 UTC; `None` if there is none."""
        with RunStore.at(self.address, is_read_only=True) as store:
            holders = store.holders(lease_name(self.address.run))
        return next((each.began for each in holders.values()), None)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the run for this process; writes in the block depend on the lease.

        Raises:
            ValueError: If another process holds the run, naming it; also if the folder holds a run
                of its own, or the files of another stored run.
            OSError: If the server cannot be reached, or the folder cannot be made.
        """
        with RunStore.at(self.address) as store, self._held(store):
            self._take_folder(store)
            yield

    @contextmanager
    def hold_in_database(self) -> Iterator[None]:
        """Hold the run, whatever its folder on this machine has; raises as `hold` does."""
        with RunStore.at(self.address) as store, self._held(store):
            yield

    @contextmanager
    def _held(self, store: RunStore) -> Iterator[None]:
        lease = store.hold(lease_name(self.address.run))
        try:
            with guarded_by(lease):
                yield
        finally:
            if lease is not None:
                lease.release()

    def take_folder(self) -> None:
        """Create the folder for the files of this run, and mark it as that of this run.

        Raises:
            ValueError: If it holds a run of its own, or the files of another run, naming that one.
            OSError: If it cannot be made, or the server cannot be reached.
        """
        with RunStore.at(self.address, is_read_only=True) as store:
            self._take_folder(store)

    def _take_folder(self, store: RunStore) -> None:
        """Do what `take_folder` does.

        Name and time identify a run, as addresses of one database can differ. Runs of several
        databases may have one name, and so the same folder.
        """
        if self.settings.exists():
            raise ValueError(f"{self.path}: holds a run of its own; give another folder with --out")
        for known in store.named.all(self.address.run):  # none while the run is not claimed
            if not self.has_own_files():
                self._remove_leftover()
            make_folder(self.path)
            own = {**_identity(known), "place": self.place}
            try:
                create_text(self.path / OWNER, json.dumps(own))
            except FileExistsError:
                if not self._has_files_of(known):
                    raise ValueError(self._taken(self._owner())) from None

    def _remove_leftover(self) -> None:
        """Remove the files of an earlier run of this name here, if it bought nothing.

        Another machine has freed its name, as `forget_unpaid` does.
        """
        if not (self.path / OWNER).exists() or self._owner().get("place") != self.place:
            return
        noted = noted_requests(self.requests)
        is_unpaid = noted is not None and not noted.dollars
        has_steps = self.steps.exists() and self.steps.stat().st_size > 0
        if not has_steps and (is_unpaid or not self.requests.exists()):
            rmtree(self.path)

    def _has_files_of(self, known: NamedRun) -> bool:
        own, owner = _identity(known), self._owner()
        return {name: owner.get(name) for name in own} == own

    def _owner(self) -> Mapping[str, object]:
        """The run whose files are in the folder."""
        file = self.path / OWNER
        try:
            return record(read_text(file))
        except ValueError as error:
            raise ValueError(f"{file}: is damaged ({error}); give another folder") from error

    def _taken(self, owner: Mapping[str, object]) -> str:
        return (
            f"{self.path}: holds the files of {owner.get('place')}, expected those of {self.place};"
            " give another folder with --out"
        )

    @property
    def claimed_at(self) -> float | None:
        """When the name was taken, in seconds since 1970 UTC; `None` if there is no run."""
        with RunStore.at(self.address, is_read_only=True) as store:
            return next((each.claimed_at for each in store.named.all(self.address.run)), None)

    def load(self) -> RunConfig:
        """The settings of the run; raises `ValueError` if there is none."""
        return read_config(self._settings_text(), self.place)

    @property
    def purse(self) -> str:
        """The name of the purse with which the run was to begin, empty without one."""
        return purse_in(self._settings_text())

    def _settings_text(self) -> str:
        with RunStore.at(self.address, is_read_only=True) as store:
            text = store.named.settings(self.address.run)
        if text is None:
            raise ValueError(f"{self.place}: no run of this name in the database")
        return text

    def save(self, config: RunConfig) -> None:
        """Replace the settings."""
        text = config_text(config, self.purse)
        with RunStore.at(self.address) as store:
            store.named.save(self.address.run, text)

    def claim(self, config: RunConfig, purse: str = "") -> None:
        """Take the name for a new run and save its settings, and the name of its purse.

        Raises:
            ValueError: If the name is taken, or the folder holds something that would be lost.
            OSError: If the folder cannot be made or the server not reached.
        """
        with RunStore.at(self.address) as store:
            # A run of this name may be running: say that it exists, not that it is held.
            self._check_free(store)
            with self._held(store):  # keeps the graphs of other processes out of the thread
                # Again: another process may have claimed the name before the lease.
                self._check_free(store)
                make_folder(self.path)
                if not store.named.claim(self.address.run, config_text(config, purse)):
                    raise ValueError(self._occupied())
            self._take_folder(store)

    def check_free(self) -> None:
        """Refuse a name or a folder that a new run would overwrite; raises `ValueError`.

        A run would continue from checkpoints that a graph has saved in a thread of the same name.
        """
        with RunStore.at(self.address) as store:
            self._check_free(store)

    def _check_free(self, store: RunStore) -> None:
        if store.named.settings(self.address.run) is not None:
            raise ValueError(self._occupied())
        self._remove_leftover()
        RunFolder.check_free(self)
        if (self.path / OWNER).exists():
            raise ValueError(self._taken(self._owner()))
        self._check_no_thread(store)

    def _check_no_thread(self, store: RunStore) -> None:
        if store.named.is_thread(self.address.run):
            raise ValueError(
                f"{self.place}: the database has checkpoints of a graph's thread of this name;"
                " choose another one"
            )

    def has_own_files(self) -> bool:
        """Whether the folder has the files of this run, and not of another one of its name."""
        if not (self.path / OWNER).exists():
            return False
        with RunStore.at(self.address, is_read_only=True) as store:
            return any(map(self._has_files_of, store.named.all(self.address.run)))

    def has_bought(self) -> bool:
        """Whether anything was answered or may have been billed; raises as `hold` does."""
        with RunStore.at(self.address, is_read_only=True) as store:
            return _has_bought(store)

    def forget_unpaid(self) -> None:
        """Free the name of a run that has bought nothing, for a run with other settings.

        Its files and checkpoints are deleted. Raises as `hold` does.
        """
        from costada.store.postgres_checkpoints import PostgresRunSaver

        with self.hold_in_database(), RunStore.at(self.address) as store:
            if _has_bought(store):
                return
            if self.has_own_files():
                rmtree(self.path, ignore_errors=True)
            with closing(PostgresRunSaver(self.address.database)) as saver:
                saver.delete_thread(self.address.run)
            store.named.forget(self.address.run)

    def check_own_problem(self) -> None:
        """Raise `ValueError` if there is no run: no problem comes with a database."""
        self.load()

    def check_kept(self) -> None:
        """Do nothing: a run that has started cannot be missing from its own database."""


def _identity(known: NamedRun) -> Mapping[str, object]:
    """What a folder says of the run that it has the files of."""
    return {"run": known.name, "claimed_at": known.claimed_at}


def _has_bought(store: RunStore) -> bool:
    run_id, calls = store.last_run(), store.call_log
    return calls.has_answer(run_id) or bool(calls.requests(run_id).dollars)


def run_at(place: str | Path, out: Path | None = None) -> RunFolder:
    """The run in a folder, or in a database as `postgresql://USER@HOST/DATABASE#RUN`.

    Args:
        place: Where the run is kept.
        out: Folder of a stored run's files; by default its name below `runs-out`.

    Raises:
        ValueError: The address is malformed, or its run cannot be the name of a folder.
    """
    if not isinstance(place, str) or not is_database(place):
        check_path(str(place), "run")
        return RunFolder(Path(place))
    address = RunAddress.read(place)
    if not NAME.fullmatch(address.run) or ".." in PurePosixPath(address.run).parts:
        raise ValueError(
            f"run: got the name {address.run!r}, expected letters, digits and ._-=+ in parts"
            " between slashes"
        )
    if any(len(part.encode()) > MAX_PART for part in address.run.split("/")):
        raise ValueError(
            f"run: got the name {address.run!r}, expected parts of at most {MAX_PART} bytes between"
            " slashes"
        )
    return StoredRun(out or DEFAULT_PARENT / address.run, address)


def unused_run(problem: str, database: str, parent: Path = DEFAULT_PARENT) -> StoredRun:
    """A run with the first default name that is free.

    No run of the database has it, no thread of a graph, and no folder with files below `parent`.
    """
    check_database(database)
    with RunStore.postgres(database) as store:
        taken = store.named.taken()
    folders = (parent / name for name in default_names(problem) if name not in taken)
    folder = next(
        each for each in folders if not each.exists() or (each.is_dir() and not any(each.iterdir()))
    )
    return StoredRun(folder, RunAddress(database, folder.name))


def named_runs(database: str) -> list[StoredRun]:
    """The runs of a database by age, oldest first; raises as `RunStore.postgres` does."""
    check_database(database)
    with RunStore.postgres(database, is_read_only=True) as store:
        names = [each.name for each in store.named.all()]
    return [StoredRun(DEFAULT_PARENT / name, RunAddress(database, name)) for name in names]


def lease_name(run: str) -> str:
    """What names the run's thread in the table of leases, as its graph does."""
    return f"thread {run!r}"
