"""A network between clients and a Postgres server that a test can disturb: a proxy of TCP."""

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from ports import free_port
from postgres_server import Server
from warm import PROCESSES

TIMEOUTS = "connect_timeout=2&tcp_user_timeout=2000"
"""In an address: short times until a client notices that the network is cut."""

RESET_AT_ONCE = struct.pack("ii", 1, 0)


class Network:
    """The way to a server through a process that forwards bytes, or does not.

    Attributes:
        address: That of the server for its clients; short timeouts come with it.
    """

    def __init__(self, port: int, control: Connection) -> None:
        self._control = control
        self.address = f"postgresql://postgres@127.0.0.1:{port}/postgres?{TIMEOUTS}"

    def let(self, state: str) -> None:
        """Change the state; returns once that is done.

        Args:
            state: `forward`; `hold`: nothing is forwarded, and nobody is told; `reset`: connections
                are reset, and new ones forwarded; `refuse`: new ones are refused as well.
        """
        self._control.send(state)
        assert self._control.poll(60)
        self._control.recv()


@contextmanager
def network_to(server: Server) -> Iterator[Network]:
    """A network to a server, whose process ends with the block."""
    port = free_port()
    own, other = PROCESSES.Pipe()
    process = PROCESSES.Process(target=_forward, args=(server.socket, port, other), daemon=True)
    process.start()
    other.close()
    network = Network(port, own)
    network.let("forward")
    try:
        yield network
    finally:
        process.kill()
        process.join()


def _forward(target: str, port: int, control: Connection) -> None:
    asyncio.run(_Proxy(target, port).obey(control))


class _Proxy:
    def __init__(self, target: str, port: int) -> None:
        self._target, self._port = target, port
        self._may_forward = asyncio.Event()
        self._listener: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def obey(self, control: Connection) -> None:
        loop = asyncio.get_running_loop()
        while True:
            state = await loop.run_in_executor(None, control.recv)
            if state in ("reset", "refuse"):
                for each in self._writers:
                    each.transport.abort()
            if state == "hold":
                self._may_forward.clear()
            else:
                self._may_forward.set()
            if state == "refuse" and self._listener:
                self._listener.close()
                self._listener = None
            elif state != "refuse" and not self._listener:
                self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
            control.send(state)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = writer.get_extra_info("socket")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_ONCE)
        self._writers.add(writer)
        try:
            await self._may_forward.wait()
            from_server, to_server = await asyncio.open_unix_connection(self._target)
            await asyncio.gather(self._pump(reader, to_server), self._pump(from_server, writer))
        except OSError:
            writer.transport.abort()
        finally:
            self._writers.discard(writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(2**16):
                await self._may_forward.wait()
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()
