"""What a program may leave behind or send: processes, kernel objects, and messages."""

import os
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PORT = "47613"
ABSTRACT = "hostile_canary_abstract"


class Listener:
    """Listens on the loopback and on sockets with names; tells whether anything came."""

    def __init__(self, path: Path) -> None:
        """Listen; path is where the socket in the file system is to be."""
        self.stream = socket.create_server(("127.0.0.1", 0))
        self.port = self.stream.getsockname()[1]
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.datagrams.bind(("127.0.0.1", self.port))
        self.abstract_name = f"{ABSTRACT}_{os.getpid()}"
        self.abstract = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.abstract.bind(f"\0{self.abstract_name}")
        self.abstract.listen()
        self.named = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.named.bind(str(path))
        self.named.listen()
        for listening in (self.stream, self.datagrams, self.abstract, self.named):
            listening.setblocking(False)

    def heard(self) -> list[str]:
        """Return by what ways something came since the last call."""
        ways = []
        for way, server in (
            ("tcp", self.stream),
            ("abstract", self.abstract),
            ("socket file", self.named),
        ):
            with suppress(BlockingIOError):
                while True:
                    server.accept()[0].close()
                    ways.append(way)
        with suppress(BlockingIOError):
            while True:
                self.datagrams.recv(65536)
                ways.append("udp")
        return ways


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the process table."""

    pid: int
    parent: int
    name: str
    is_zombie: bool


def descendants(root: int) -> list[Process]:
    """Return every process below root."""
    table = {process.pid: process for process in _processes()}
    below = {root}
    grows = True
    while grows:
        new = {p.pid for p in table.values() if p.parent in below} - below
        below |= new
        grows = bool(new)
    return [table[pid] for pid in sorted(below - {root}) if pid in table]


def kinds(processes: list[Process]) -> Counter[str]:
    """Return how many processes there are of each name."""
    return Counter(f"{p.name}{' (zombie)' if p.is_zombie else ''}" for p in processes)


def own_memory_mb(pids: list[int]) -> int:
    """Return the memory that processes share with no file, in MiB."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith(("RssAnon", "RssShmem")):
                    total += int(line.split()[1])
    return total // 1024


def system_objects() -> list[str]:
    """Return the System V segments, queues and semaphores of the machine."""
    found = []
    for kind in ("shm", "msg", "sem"):
        with suppress(OSError):
            lines = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]
            found += [f"{kind} {' '.join(line.split()[:2])}" for line in lines]
    return found


def _processes() -> list[Process]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            with open(f"/proc/{pid}/stat", "rb") as file:
                before, _, after = file.read().rpartition(b")")
            name = before.partition(b"(")[2].decode("utf-8", "replace")
            state, parent = after.split(maxsplit=2)[:2]
            found.append(Process(int(pid), int(parent), name, state == b"Z"))
    return found
