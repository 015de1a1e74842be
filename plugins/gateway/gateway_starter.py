"""A client's side of the process in which its gateways run."""

from __future__ import annotations

import atexit
import json
import os
import socket
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Lock

from costada.evaluators.sandbox.helper_environment import NETWORK, helper_environment
from costada.plugins.gateway.gateway_protocol import GatewayAddress

ENTRY = "costada.plugins.gateway.gateway_process"
START_SECONDS = 60.0


class GatewayStarter:
    """Starts gateways in one process, which outlives this one and ends with the last of them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: tuple[Popen[bytes], socket.socket] | None = None

    def start(
        self,
        upstream: str,
        journal: Path,
        log: Path,
        call_timeout: float,
        before: GatewayAddress | None = None,
    ) -> None:
        """Start a gateway; `gateway_protocol.read_address` finds it then.

        Args:
            upstream: Address of the provider.
            journal: Its file, next to the address file.
            log: The file in which it tells of lost responses and of its end.
            call_timeout: Seconds after which a response is given up as lost.
            before: A gateway of the same journal that has died; its clients get this one instead.

        Raises:
            ValueError: Its upstream or its journal is refused.
            OSError: The machine hinders it.
        """
        given = {
            "upstream": upstream,
            "journal": str(journal.absolute()),
            "log": str(log.absolute()),
            "call_timeout": call_timeout,
            "port": before.port if before else 0,
            "token": before.token if before else "",
        }
        line = f"{json.dumps(given)}\n".encode()
        with self._lock:
            with suppress(EOFError):
                return self._ask(line)
            self._process = _begun()
            try:
                return self._ask(line)
            except EOFError as error:
                reason = str(error).splitlines() or ["it ended without a message"]
                raise OSError(f"gateway: cannot be started: {reason[-1]}") from None

    def _ask(self, line: bytes) -> None:
        """Ask the process for a gateway; raises `EOFError` with its last words if it has ended."""
        if self._process is None:
            raise EOFError
        process, channel = self._process
        self._process = None
        with ExitStack() as unless_answered:
            unless_answered.enter_context(process)  # closes what its errors come from
            unless_answered.enter_context(channel)
            try:
                channel.sendall(line)
                with channel.makefile("rb") as answers:
                    answer = answers.readline()
            except TimeoutError:
                raise OSError(f"gateway: not ready within {START_SECONDS:g} seconds") from None
            except ConnectionError:
                answer = b""
            if not answer:
                raise EOFError(process.communicate()[1].decode(errors="replace"))
            # Only now: an answer that was not read would be taken for the next one.
            self._process = process, channel
            unless_answered.pop_all()
        wrong, is_hindered = json.loads(answer)
        if wrong:
            raise (OSError if is_hindered else ValueError)(f"gateway: cannot be started: {wrong}")

    def close(self) -> None:
        """Let the process start no more gateways; those that run stay."""
        if self._process:
            (process, channel), self._process = self._process, None
            with channel, process:
                pass


def _begun() -> tuple[Popen[bytes], socket.socket]:
    """Start the process; returns the socket by which it is asked."""
    channel, its_end = socket.socketpair()
    channel.settimeout(START_SECONDS)
    with its_end:
        process = Popen(
            [sys.executable, "-P", "-m", ENTRY],
            stdin=its_end.fileno(),
            stdout=its_end.fileno(),
            stderr=PIPE,
            env=helper_environment(*NETWORK),
            start_new_session=True,
        )
    process.wait()  # it leaves this process at once
    return process, channel


STARTER = GatewayStarter()


def _leave_to_parent() -> None:
    STARTER.close()
    STARTER.__init__()  # type: ignore[misc]


atexit.register(STARTER.close)
os.register_at_fork(after_in_child=_leave_to_parent)
