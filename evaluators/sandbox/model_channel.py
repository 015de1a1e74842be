"""Our end of the channel by which a candidate reaches its models.

Who asks is known by the channel, which nobody else has, so that a candidate needs no secret. It is
closed when the candidate's evaluation ends, with all connections over it.
"""

import os
import socket
from collections.abc import Callable
from resource import RLIMIT_NOFILE, getrlimit

from costada.evaluators.sandbox.inside.multiplexer import Multiplexer
from costada.evaluators.sandbox.inside.orders import MODELS_ADDRESS
from costada.evaluators.sandbox.limits import MEBIBYTE
from costada.values.model_access import ModelAccess

ENVIRONMENT = {
    **ModelAccess("http://{}:{}".format(*MODELS_ADDRESS), "sandbox").environment(),
    "SSL_CERT_DIR": os.devnull,
}
"""The variables of a candidate that has models; the key that clients must have is not checked.
Clients prepare for TLS as they are made: they would look for certificates that they may not read.
"""

MAX_CONNECTIONS = 64
"""At once: a further one is closed as it is opened. So is one for which this process would use the
second half of the descriptors that it may have.
"""

MAX_OPENED = 10_000
MAX_SENT_BYTES = 1024 * MEBIBYTE
"""Of one evaluation, as this process spends time on each connection and each piece."""

MAX_PENDING_BYTES = 256 * 1024

Connect = Callable[[socket.socket], None]
"""Serves a connection of a candidate; takes the connected socket, and closes it if it cannot."""


class ModelChannel:
    """Carries the connections of one evaluation."""

    def __init__(self, channel_fd: int, connect: Connect) -> None:
        """Take our end of the channel, which is closed with this object."""
        self._connect = connect
        self._multiplexer = Multiplexer(channel_fd, self._accept, MAX_PENDING_BYTES)
        self.fileno = self._multiplexer.fileno
        self.process = self._multiplexer.process
        self.close = self._multiplexer.close

    @property
    def is_open(self) -> bool:
        """Whether the candidate has its end open still."""
        return self._multiplexer.is_open

    @property
    def excess(self) -> str | None:
        """The reason to stop the candidate if it has sent more than it may; None if not."""
        if self._multiplexer.num_opened > MAX_OPENED:
            return f"the program opened more than {MAX_OPENED} connections to its models"
        if self._multiplexer.num_received > MAX_SENT_BYTES:
            size = MAX_SENT_BYTES // MEBIBYTE
            return f"the program sent more than {size} MB to its models"
        return None

    def _accept(self) -> int | None:
        if self._multiplexer.num_connections >= MAX_CONNECTIONS or self.excess:
            return None
        ours, theirs = socket.socketpair()
        max_open, _ = getrlimit(RLIMIT_NOFILE)
        # The lowest free numbers are given, so a high one shows how many are in use.
        if theirs.fileno() > max_open // 2:
            ours.close()
            theirs.close()
            return None
        self._connect(theirs)
        return ours.detach()
