"""PgBouncer in front of a Postgres server, for a test; skips where PgBouncer is not installed."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from needed_programs import require
from psycopg.conninfo import conninfo_to_dict, make_conninfo

PORT = 6432
SETTINGS = {
    "listen_port": PORT,
    "auth_type": "any",
    "ignore_startup_parameters": "options",
    "pool_mode": "session",
    "default_pool_size": 60,
    "max_client_conn": 200,
}


class PgBouncer:
    """A running pooler.

    Attributes:
        address: Of the database behind it.
    """

    def __init__(self, program: str, folder: Path, server: str, settings: dict) -> None:
        self._program, self._folder = program, folder
        host, port = (conninfo_to_dict(server).get(each, "") for each in ("host", "port"))
        self.address = make_conninfo(server, host=folder, port=PORT)
        lines = [f"{name} = {value}" for name, value in (SETTINGS | settings).items()]
        self._file = folder / "pgbouncer.ini"
        self._file.write_text(
            f"[databases]\n* = host={host} port={port or 5432} user=postgres\n"
            f"[pgbouncer]\nunix_socket_dir = {folder}\n" + "\n".join(lines) + "\n"
        )

    def begin(self) -> None:
        user = "postgres" if os.geteuid() == 0 else None  # PgBouncer refuses to run as root
        with (self._folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [self._program, "-q", self._file], user=user, stderr=log
            )
        deadline = time.monotonic() + 30
        while not self._accepts():
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _accepts(self) -> bool:
        """Whether it accepts connections; its socket is there before it does."""
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(self._folder / f".s.PGSQL.{PORT}")) == 0

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._process.kill()
        self._process.wait()
        (self._folder / f".s.PGSQL.{PORT}").unlink(missing_ok=True)


@contextmanager
def started_pgbouncer(server: str, **settings: object) -> Iterator[PgBouncer]:
    """PgBouncer with some settings in front of the server of an address."""
    program = require("pgbouncer")
    folder = Path(mkdtemp(dir="/var/tmp"))  # the path of a socket is short
    folder.chmod(0o777)
    try:
        pooler = PgBouncer(program, folder, server, settings)
        pooler.begin()
        try:
            yield pooler
        finally:
            pooler.kill()
    finally:
        shutil.rmtree(folder)
