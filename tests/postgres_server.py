"""A Postgres server for one test, which may crash it; skips where Postgres is not installed."""

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import psycopg
import pytest
from waiting import within

OPTIONS = (
    "-c fsync=off"
    " -c autovacuum=off -c bgwriter_lru_maxpages=0"  # only commits write the log: see `delay_log`
    " -c unix_socket_directories="
)
PASSWORD_RULE = "local all guarded scram-sha-256\n"


class Server:
    """A running server, which trusts every local user except `guarded`."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder, self.programs = folder, programs
        self.address = f"postgresql://postgres@/postgres?host={folder}"
        self.socket = f"{folder}/.s.PGSQL.5432"
        self._listening = " -c listen_addresses="

    def begin(self) -> None:
        self._run("initdb", "--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8")
        rules = self._folder / "data" / "pg_hba.conf"
        rules.write_text(PASSWORD_RULE + rules.read_text())
        self.control("start")

    def control(self, *words: str) -> None:
        """Start, stop or restart the server and wait until that is done."""
        options = f"{OPTIONS}{self._folder}{self._listening}"
        self._run("pg_ctl", "--wait", f"--log={self._folder}/log", "--options", options, *words)

    def listen(self, port: int) -> None:
        """Restart the server so that it listens at a port of this machine only."""
        self.control("stop")
        self._listening = f" -c listen_addresses=127.0.0.1 -c port={port}"
        self.address = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        self.control("start")

    def demote(self) -> None:
        """Restart the server as a standby, which takes no writes until `control("promote")`."""
        self.control("stop")
        (self._folder / "data" / "standby.signal").touch()
        self.control("start")

    def begin_as_standby_of(self, primary: "Server") -> None:
        """Begin as a copy of another server, which streams its log."""
        shutil.rmtree(self._folder / "data", ignore_errors=True)
        options = "--write-recovery-conf", "--checkpoint=fast", "--no-sync"
        self._run("pg_basebackup", f"--dbname={primary.address}", *options)
        self.control("start")

    def wait_for_standbys(self) -> None:
        """From now on, let a durable commit be on the disk of a standby as well."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            # Not '*': `pg_basebackup` would be a standby.
            connection.execute("ALTER SYSTEM SET synchronous_standby_names TO 'walreceiver'")
            connection.execute("SELECT pg_reload_conf()")
            shown = "SHOW synchronous_standby_names"
        within(60, lambda: self._rows(shown) == [("walreceiver",)])

    def _rows(self, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.address) as connection:
            return connection.execute(query.encode()).fetchall()

    def delay_log(self) -> None:
        """Let nothing but commits bring the log to the disk, until the server crashes."""
        os.kill(self._log_writer(), signal.SIGSTOP)

    def crash(self) -> None:
        """Kill a process of the server, which then recovers from its log, and delay that again."""
        before = self._log_writer()
        os.kill(before, signal.SIGKILL)
        within(60, lambda: self._log_writer() not in (before, 0))
        self.delay_log()

    def kill(self) -> None:
        """Kill the server itself, as a host does that runs out of memory, and start it again."""
        pid = int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
        stopped = self._log_writer()  # it would not notice that the server has ended
        os.kill(pid, signal.SIGKILL)
        os.kill(stopped, signal.SIGKILL)
        within(60, self._has_started)
        self.delay_log()

    def _has_started(self) -> bool:
        """Whether it starts, which it does once the last process of the killed one has ended."""
        try:
            self.control("start")
        except subprocess.CalledProcessError:
            return False
        return True

    def continue_log(self) -> None:
        """End what `delay_log` has begun."""
        os.kill(self._log_writer(), signal.SIGCONT)

    def _log_writer(self) -> int:
        """The process that writes the log now and then; 0 while there is none."""
        query = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"
        try:
            with psycopg.connect(self.address) as connection:
                return next((pid for (pid,) in connection.execute(query).fetchall()), 0)
        except psycopg.OperationalError:
            return 0

    def _run(self, program: str, *words: str) -> None:
        user = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root
        subprocess.run(
            [self.programs / program, f"--pgdata={self._folder / 'data'}", *words],
            check=True,
            user=user,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            timeout=60,
        )


@contextmanager
def started_server() -> Iterator[Server]:
    """A new server of its own, which ends with the block."""
    with placed_server() as server:
        server.begin()
        yield server


@contextmanager
def placed_server() -> Iterator[Server]:
    """A server that has not begun; it ends with the block."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    known = shutil.which("pg_ctl")
    if "COSTADA_POSTGRES" not in os.environ or not (known or found):
        pytest.skip("no Postgres server: `.ci/postgres make test` installs and starts one")
    folder = Path(mkdtemp(dir="/var/tmp"))  # the path of a socket is short
    if os.geteuid() == 0:
        owner = pwd.getpwnam("postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    server = Server(folder, Path(known).resolve().parent if known else found[-1].parent)
    try:
        yield server
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            server.control("stop", "--mode=immediate")
        shutil.rmtree(folder)
