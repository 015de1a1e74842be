"""Where a sweep keeps its runs and which purse pays for them, for later commands."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter, ValidationError

from costada.experiments.sweep.sweep import SweepRun, stored_step, with_grant, with_last_step
from costada.runs.shared_purse import PurseAddress
from costada.runs.stored_run import StoredRun
from costada.store.address import address_parts, check_database, is_database, shown_address
from costada.store.files import make_folder, read_text, replace_text
from costada.store.run_store import RunStore

FILE = "sweep.json"
"""File in the folder of a sweep whose runs are in Postgres or draw from a purse."""

LOCAL_HOSTS = frozenset({"", "localhost", "127.0.0.1", "::1"})
"""Hosts of a server on this machine."""


@dataclass(frozen=True, slots=True)
class SweepPlace:
    """What `sweep.json` holds."""

    store: str | None = None  # address of the database, without a password; `None`: in folders
    purse: str | None = None  # address of the purse, without a password; a file's is relative

    @classmethod
    def load(cls, out: Path) -> Self:
        """The file of a sweep, empty if it has none; raises `ValueError` if it is damaged."""
        try:
            place = TypeAdapter(cls).validate_json(read_text(out / FILE))
            if place.store is not None:
                check_database(place.store)
        except FileNotFoundError:
            return cls()
        except (ValidationError, ValueError):
            raise ValueError(f"{out / FILE}: is damaged, expected addresses") from None
        return place

    @property
    def followed(self) -> str | None:
        """The database, if it `is_followed`; `None` if the runs are in folders.

        Raises:
            ValueError: If it is not, naming it.
        """
        if self.store is not None and not is_followed(self.store):
            raise ValueError(
                f"{FILE}: the runs are in {shown_address(self.store)}; to connect there, set PGHOST"
                " to this host or name the database yourself"
            )
        return self.store


def is_followed(database: str) -> bool:
    """Whether to connect to a server that only a sweep's folder names.

    The folder may come from somebody else, and a connection may send the user's password. So the
    user has to name a server that is neither on this machine nor the one in `PGHOST`.
    """
    parts = address_parts(database)
    hosts = f"{parts.get('host', '')},{parts.get('hostaddr', '')}".split(",")
    known = {*LOCAL_HOSTS, os.environ.get("PGHOST", "")}
    # A path is the folder of a socket on this machine.
    return all(host in known or host.startswith("/") for host in hosts)


def place_of(out: Path, store: str | None) -> str | None:
    """The database of a sweep, `None` if its runs are in folders.

    Args:
        out: Folder of the sweep.
        store: The address that the user gave, if any.

    Raises:
        ValueError: If the folder names another database, or one that is not followed.
    """
    known = SweepPlace.load(out)
    if known.store is None:
        return store
    if store is None:
        return known.followed
    if shown_address(known.store) != shown_address(store):
        raise ValueError(
            f"--store: got {shown_address(store)}, expected {shown_address(known.store)}, where"
            f" {out} has its runs"
        )
    return store


def given_place(out: Path, store: str | None, purse: PurseAddress | None) -> SweepPlace:
    """The place that a sweep's command names, checked against that of its folder.

    Raises:
        ValueError: If the sweep has its runs somewhere else, or another purse pays for them.
    """
    known = SweepPlace.load(out)
    if known.store and store is None:
        raise ValueError(
            f"{out}: has its runs in {shown_address(known.store)}, expected that as --store"
        )
    place_of(out, store)
    if store and not known.store and any(out.rglob("settings.json")):
        raise ValueError(f"--store: {out} has runs in folders, expected another --out")
    place = None
    if purse:
        place = shown_address(purse.place) if purse.dsn else os.path.relpath(purse.place, out)
    if known.purse and place != known.purse:
        expected = known.purse
        if not is_database(expected):
            expected = os.path.normpath(out / expected)
        got = f"got {purse.place}" if purse else "is missing"
        raise ValueError(f"--purse: {got}, expected {expected}, which pays for the runs of {out}")
    return SweepPlace(store, place)


def keep_place(out: Path, place: SweepPlace) -> None:
    """Note in a sweep's folder where its runs are and what pays for them, see `given_place`."""
    if place == SweepPlace.load(out):
        return
    make_folder(out)
    replace_text(out / FILE, TypeAdapter(SweepPlace).dump_json(place, indent=2).decode() + "\n")


class StepReader:
    """Reads the last steps of a sweep's runs over one connection."""

    def __init__(self, store: RunStore | None) -> None:
        """Take the open database of the runs, `None` for runs in folders."""
        self._store = store

    def __call__(self, run: SweepRun) -> SweepRun:
        """As `with_last_step`; the run as it is known if the server does not respond."""
        if self._store is None or not isinstance(run.folder, StoredRun):
            return with_last_step(run)
        try:
            return with_grant(replace(run, step=stored_step(run.folder, self._store)))
        except OSError:
            return run


@contextmanager
def steps_in(store: str | None) -> Iterator[StepReader]:
    """A reader of the runs in a database, whose tables are created if they are missing.

    Raises:
        ValueError: If it is not a database of CostAda.
        OSError: If the server cannot be reached.
    """
    if store is None:
        yield StepReader(None)
        return
    with RunStore.postgres(store) as opened:
        yield StepReader(opened)
