"""Where a run is kept: in a file of its own, or under a name in a Postgres database."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from costada.values.redaction import has_password

POSTGRES = ("postgresql:", "postgres:")
"""How the addresses of Postgres databases begin; two slashes in a path become one."""

MAX_NAME = 200


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
                f"run: the address names a database and no run, expected {shown(database)}#RUN;"
                " `costada runs` lists them"
            )
        check_name(run)
        return cls(database, run)

    def __str__(self) -> str:
        return f"{shown(self.database)}#{self.run}"


StorePlace = Path | RunAddress
"""A run file, or a run in Postgres."""


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
            f"{field}: got a {type(text).__name__}, expected the text"
            " postgresql://USER@HOST:PORT/DATABASE"
        )
    if not is_database(text) or "#" in text:
        may_have_secret = "@" in text or has_password(text)
        other = "an address of another kind" if may_have_secret else text
        raise ValueError(
            f"{field}: got {'an address with #RUN' if is_database(text) else other!r}, expected"
            " postgresql://USER@HOST:PORT/DATABASE"
        )
    shown(text)


def check_name(run: str) -> None:
    """Raise `ValueError` for a text that cannot name a run."""
    if not 0 < len(run) <= MAX_NAME or not run.isprintable() or run != run.strip():
        raise ValueError(
            f"run: got the name {run[:MAX_NAME]!r}, expected 1 to {MAX_NAME} printable characters"
        )


def shown(database: str) -> str:
    """The address of a database without its password.

    Raises:
        ValueError: The address cannot be read, or psycopg is not installed.
    """
    try:
        from costada.store.postgres_connections import name_of
    except ImportError as error:
        raise ValueError("Postgres needs psycopg; pip install 'costada[postgres]'") from error
    return name_of(database)


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
