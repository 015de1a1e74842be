"""A pooler between clients and a Postgres server, by the rules that PgBouncer documents.

It logs its clients in itself, with a process id of its own making, and drops the options of their
connections or refuses them. In session mode a client keeps its session until it leaves; in
transaction mode the session goes to the next client after each transaction.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import randrange
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from tempfile import TemporaryDirectory
from threading import Lock, Thread

from psycopg.conninfo import conninfo_to_dict, make_conninfo

PORT = 6432
PROTOCOL = 196608
REFUSED = b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: options\0\0"


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def read_message(stream) -> tuple[bytes, bytes]:
    kind = stream.read(1)
    return kind, stream.read(struct.unpack("!i", stream.read(4))[0] - 4) if kind else b""


class Session:
    """A connection to the server."""

    def __init__(self, path: Path, login: bytes) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.stream = self.socket.makefile("rb")
        self.socket.sendall(struct.pack("!ii", len(login) + 8, PROTOCOL) + login)
        self.facts = b"".join(message(*each) for each in self.answers() if each[0] == b"S")

    def close(self) -> None:
        self.stream.close()
        self.socket.close()

    def answers(self) -> Iterator[tuple[bytes, bytes]]:
        """The messages of the server until it is ready for the next query."""
        kind = b""
        while kind != b"Z":
            kind, body = read_message(self.stream)
            yield kind, body


class Pooler(ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, folder: Path, server: Path, mode: str) -> None:
        super().__init__(str(folder / f".s.PGSQL.{PORT}"), Client)
        self.server_path, self.mode = server, mode
        self.idle: list[Session] = []
        self.lock = Lock()

    def session(self, login: bytes) -> Session:
        with self.lock:
            return self.idle.pop() if self.idle else Session(self.server_path, login)

    def server_close(self) -> None:
        super().server_close()
        for session in self.idle:
            session.close()

    def release(self, session: Session) -> None:
        with self.lock:
            self.idle.append(session)


class Client(StreamRequestHandler):
    server: Pooler

    def handle(self) -> None:
        (length,) = struct.unpack("!i", self.rfile.read(4))
        words = self.rfile.read(length - 4)[4:].split(b"\0")
        given = dict(zip(words[::2], words[1::2], strict=False))
        if self.server.mode == "refusing":
            self.wfile.write(message(b"E", REFUSED))
            return
        login = b"".join(b"%s\0%s\0" % (k, given[k]) for k in (b"user", b"database")) + b"\0"
        held = self.server.session(login)
        key = struct.pack("!ii", randrange(10**8, 10**9), 0)
        ready = message(b"K", key) + message(b"Z", b"I")
        self.wfile.write(message(b"R", struct.pack("!i", 0)) + held.facts + ready)
        if self.server.mode == "session":
            self.keep(held)
        else:
            self.server.release(held)
            self.share(login)

    def keep(self, held: Session) -> None:
        """Pass everything on until the client leaves."""

        def answer() -> None:
            while found := held.socket.recv(65536):
                self.wfile.write(found)

        answering = Thread(target=answer, daemon=True)
        answering.start()
        while found := self.rfile.read1(65536):
            held.socket.sendall(found)
        held.socket.shutdown(socket.SHUT_RDWR)
        answering.join()
        held.close()

    def share(self, login: bytes) -> None:
        """Take a session for each transaction, of clients that wait for each answer."""
        held: Session | None = None
        while (found := read_message(self.rfile))[0] not in (b"", b"X"):
            held = held or self.server.session(login)
            held.socket.sendall(message(*found))
            if found[0] in (b"Q", b"S"):
                status = b""
                for kind, body in held.answers():
                    self.wfile.write(message(kind, body))
                    status = body
                if status == b"I":
                    self.server.release(held)
                    held = None


@contextmanager
def pooled(address: str, mode: str) -> Iterator[str]:
    """The address of a pooler in front of a server: "session", "transaction" or "refusing"."""
    host = Path(str(conninfo_to_dict(address)["host"]))
    with ExitStack() as opened:
        folder = opened.enter_context(TemporaryDirectory(dir="/var/tmp"))
        pooler = opened.enter_context(Pooler(Path(folder), host / ".s.PGSQL.5432", mode))
        opened.callback(pooler.shutdown)
        Thread(target=pooler.serve_forever, daemon=True).start()
        yield make_conninfo(address, host=folder, port=PORT)
