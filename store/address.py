"""Where a run is kept: a file, or a name in a Postgres database; and errors that name it."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from costada.values.redaction import has_password

POSTGRES = ("postgresql:", "postgres:")
"""How the addresses of Postgres databases begin; two slashes in a path become one."""

MAX_NAME = 200

NEEDS_PSYCOPG = "Postgres needs psycopg; pip install 'costada[postgres]'"
NOT_TAKEN_OUT = "Postgres address: its password cannot be taken out; set PGPASSWORD"
CAN_RESUME = "what was saved is still there, so the run can be resumed afterwards"
"""Ends what is said where a file or a server cannot be used for now."""


@dataclass(frozen=True, slots=True)
class RunAddress:
    """A run in a Postgres database, written as `postgresql://USER@HOST/DATABASE#RUN`.

    Attributes:
        database: The address of the database, possibly with a password.
        run: The name of the run, or the id of one that has no name.
    """

    database: str
    run: str

    @classmethod
    def read(cls, text: str) -> "RunAddress":
        """Parse an address.

        Raises:
            ValueError: It is not one of a Postgres database, or names no run.
        """
        database, run = split_address(text, "run")
        check_database(database)
        if not run:
            raise ValueError(
                "run: the address names a database and no run, expected"
                f" {shown_address(database)}#RUN; `costada runs` lists them"
            )
        check_name(run)
        return cls(database, run)

    def __str__(self) -> str:
        return f"{shown_address(self.database)}#{self.run}"


StorePlace = Path | RunAddress
"""A run file, or a run in Postgres."""

Place = Path | str | None
"""What messages call a database: its file, its address without the password, `None` in memory."""


def split_address(text: str, field: str) -> tuple[str, str]:
    """The address of a database and the name after it, as in `postgresql://USER@HOST/DATABASE#NAME`.

    Raises:
        ValueError: What looks like the name may be the end of a password; it is not repeated.
    """
    database, _, name = text.partition("#")
    if "@" in name or "#" in name:
        raise ValueError(
            f"{field}: the name after the first # of the address has an @ or a #, expected none;"
            " in a password, write # as %23"
        )
    last = unquote(database.replace("?", "&").rpartition("&")[2])
    if name and last.startswith(("password=", "sslpassword=")):
        raise ValueError(
            f"{field}: the address ends with a password, so the name after # may be a part of it;"
            " expected another parameter in between, postgresql://USER:PASSWORD@HOST, or PGPASSWORD"
        )
    return database, name


def is_database(text: str) -> bool:
    """Whether a text is the address of a Postgres database, or of a run in one."""
    return text.startswith(POSTGRES)


def check_database(text: str, field: str = "store") -> None:
    """Raise `ValueError` for the text of a field that is not an address of a Postgres database."""
    if not isinstance(text, str):
        raise ValueError(
            f"{field}: got a {type(text).__name__}, expected the string"
            " postgresql://USER@HOST:PORT/DATABASE"
        )
    if not is_database(text) or "#" in text:
        may_have_secret = "@" in text or has_password(text)
        other = "an address of another kind" if may_have_secret else text
        raise ValueError(
            f"{field}: got {'an address with #RUN' if is_database(text) else other!r}, expected"
            " postgresql://USER@HOST:PORT/DATABASE"
        )
    shown_address(text)


def check_name(run: str) -> None:
    """Raise `ValueError` for a text that cannot name a run."""
    if not 0 < len(run) <= MAX_NAME or not run.isprintable() or run != run.strip():
        raise ValueError(
            f"run: got the name {run[:MAX_NAME]!r}, expected 1 to {MAX_NAME} printable characters"
        )


def check_path(text: str, field: str) -> None:
    """Raise `ValueError` for the text of a path that is an address of a database instead."""
    if is_database(text) or has_password(text):
        raise ValueError(
            f"{field}: got the address of a database, expected a path, or in its place"
            " postgresql://USER@HOST/DATABASE#NAME where a run is named"
        )


def is_there(place: StorePlace) -> bool:
    """Whether a run file exists; a run in Postgres is there once its name is."""
    return not isinstance(place, Path) or place.is_file()


def address_parts(address: str) -> dict[str, Any]:
    """The parameters of an address.

    An address is refused where the part of a password after a character that must be encoded would
    count as a host, a port or a database, which messages show.

    Raises:
        ValueError: The address cannot be read, or psycopg is not installed. What may be a secret is
            not repeated.
    """
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as error:
        raise ValueError(NEEDS_PSYCOPG) from error
    try:
        parts = conninfo_to_dict(address)
    except ProgrammingError:  # its message shows the address
        parts = {"host": "@"}
    before, slash, after = address.partition("://")[2].partition("?")[0].partition("/")
    ports = str(parts.get("port", "")).split(",")
    is_odd = "@" in str(parts.get("host", "")) or before.count("@") > 1 or "@" in slash + after
    if is_odd or any(port and not port.isdecimal() for port in ports):
        raise ValueError(
            "Postgres address: cannot be read, expected postgresql://USER@HOST:PORT/DATABASE; in a"
            " password, write @ as %40, / as %2F, ? as %3F, # as %23 and : as %3A"
        )
    return parts


def shown_address(address: str) -> str:
    """What messages call the database of an address, without its password and options.

    Raises as `address_parts` does.
    """
    parts = {key: str(value) for key, value in address_parts(address).items()}
    host, user = parts.get("host", ""), parts.get("user", "")
    is_socket = host.startswith("/")
    place = f"{quote(user)}@" if user else ""
    if not is_socket:
        place += f"[{host}]" if ":" in host else host
    if port := parts.get("port"):
        place += f":{port}"
    ending = f"?host={host}" if is_socket else ""
    return f"postgresql://{place}/{quote(parts.get('dbname', ''))}{ending}"


def without_password(address: str) -> tuple[str, str]:
    """An address without its password, and the password; empty if it has none.

    Raises:
        ValueError: The address cannot be read, or its password cannot be taken out.
    """
    given = address_parts(address)
    if "sslpassword" in given:
        raise ValueError(
            "Postgres address: sslpassword cannot be taken out; put it into a service file and set"
            " PGSERVICE"
        )
    try:
        parts = urlsplit(address)
    except ValueError:  # it would show the password
        raise ValueError(NOT_TAKEN_OUT) from None
    user, at, host = parts.netloc.rpartition("@")
    query = "&".join(each for each in parts.query.split("&") if not each.startswith("password="))
    place = f"{user.partition(':')[0]}{at}{host}"
    rest = f"?{query}" if query else ""
    bare = f"{parts.scheme}://{place}{parts.path}{rest}"
    password = str(given.pop("password", ""))
    if address_parts(bare) != given:
        raise ValueError(NOT_TAKEN_OUT)
    return bare, password


def damage_error(place: Place | RunAddress, what: str) -> ValueError:
    """The error for a file or database whose contents cannot be relied on."""
    rest = (
        ""
        if isinstance(place, str | RunAddress)
        else " (what is left can be read with: sqlite3 FILE .recover)"
    )
    return ValueError(
        f"{place or 'run in memory'}: {' '.join(what.split())}; restore it from a backup, or"
        f" begin another run{rest}"
    )


def format_error(
    place: Place | RunAddress, found: object, known: int, *, can_migrate: bool = False
) -> ValueError:
    """The error for a file or database that another version of CostAda wrote.

    Args:
        place: What it is of.
        found: Its format; `None` if it has none.
        known: The format of this version.
        can_migrate: Whether this version can upgrade it.
    """
    other = "database" if isinstance(place, str | RunAddress) else "folder"
    written = "no format" if found is None else f"format {found}"
    if can_migrate:
        advice = f"upgrade it: costada upgrade {shlex.quote(str(place))}"
    elif isinstance(found, int) and found > known:
        advice = (
            "install that version, or a newer one, to resume it; this version can only show it"
            " (costada report, trace, export)"
        )
    else:
        advice = f"use that version for this run, or start a new run in another {other}"
    return ValueError(
        f"{place or 'run in memory'}: written by another version of CostAda ({written}, expected"
        f" {known}); {advice}"
    )


def foreign_error(place: Place | RunAddress, what: str) -> ValueError:
    """The error for a file or database whose tables are not those of CostAda."""
    kind = "schema" if isinstance(place, str | RunAddress) else "run file"
    return ValueError(f"{place or 'run in memory'}: not a {kind} of CostAda: {what}")
