"""The bubblewrap layer: the server in namespaces where nothing but its libraries is there."""

import json
import os
import signal
import socket
from contextlib import closing, suppress
from shutil import which

from costada.evaluators.sandbox.launch import SYSTEM_FILES, SYSTEM_FOLDERS
from costada.evaluators.sandbox.layers.protocol import INNER_FOLDER, SandboxLayer
from costada.evaluators.sandbox.limits import MEBIBYTE
from costada.evaluators.sandbox.slot_kind import SlotKind

MOUNTING = ("CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE")
"""What the server needs, in namespaces of its own, to mount an overlay; candidates lack it."""

INFO_SECONDS = 2.0
MAX_INFO_BYTES = 65536


class Bubblewrap(SandboxLayer):
    """Namespaces around the server, with Landlock and seccomp inside of them.

    Namespaces alone would leave candidates the memory of the first process in them, signals to
    their own server, and sockets.
    """

    strength = 3
    has_filesystem = True
    has_folder = False  # all files are in a file system of the namespace, and end with it

    def __init__(self, kind: SlotKind) -> None:
        """Prepare it; bwrap reports over a socket of its own which process it has started."""
        super().__init__(kind)
        self._info, self._their_info = socket.socketpair()
        self._init_fd: int | None = None

    @classmethod
    def may_change_modes(cls) -> bool:
        """For users other than root: devices and entries of /proc are root's, for all processes."""
        return os.geteuid() != 0

    def _launch(self) -> None:
        """Start the server in bwrap."""
        info_fd = self._their_info.fileno()
        self._launch_below(self._bwrap(info_fd), [info_fd])
        self._their_info.close()

    def _bwrap(self, info_fd: int) -> list[str]:
        def bound(path: str) -> list[str]:
            return ["--ro-bind-try", path, path]

        program = which("bwrap")
        if program is None:
            raise FileNotFoundError("bwrap is not installed: apt-get install bubblewrap")
        command = [program, "--unshare-all", "--unshare-user", "--cap-drop", "ALL"]
        command += ["--share-net"] if self.kind.opened.has_network else []
        for capability in MOUNTING if self.kind.copied else ():
            command += ["--cap-add", capability]
        command += ["--hostname", "sandbox"]
        for path in SYSTEM_FOLDERS:
            is_link = os.path.islink(path)
            command += ["--symlink", os.readlink(path), path] if is_link else bound(path)
        for path in SYSTEM_FILES:
            command += bound(path)
        command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108
        command += ["--size", str(self.kind.room_mb * MEBIBYTE), "--tmpfs", INNER_FOLDER]
        for path in self._mounted:
            command += bound(path)
        if socket_path := self.kind.opened.engine_socket:
            command += bound(socket_path)
        for path in self.kind.opened.devices:
            command += ["--dev-bind", path, path]
        # Read-only last: bwrap makes the places of what is mounted below /tmp until then.
        command += ["--remount-ro", "/tmp", "--chdir", INNER_FOLDER]  # noqa: S108
        return [*command, "--info-fd", str(info_fd), "--"]

    def settle(self) -> None:
        """Get hold of the first process in the namespace: all others die with it."""
        with closing(self._info) as info:
            info.settimeout(INFO_SECONDS)
            try:
                number: int = json.loads(info.recv(MAX_INFO_BYTES))["child-pid"]
            except (TimeoutError, ValueError):
                raise RuntimeError(
                    "sandbox: bwrap does not report the process it has started"
                ) from None
        try:
            self._init_fd = os.pidfd_open(number)
        except ProcessLookupError:
            raise BrokenPipeError("the slot was killed while it was starting") from None
        super().settle()

    def kill(self) -> None:
        """Kill the first process in the namespace, then bwrap.

        Without bwrap, what is in the namespace would live on: `--die-with-parent` follows the
        thread that starts a process, and a slot may outlive that.
        """
        # By a descriptor: once the process has ended, its number may belong to another one.
        with suppress(ProcessLookupError):
            if self._init_fd is not None:
                signal.pidfd_send_signal(self._init_fd, signal.SIGKILL)
        super().kill()

    def close(self) -> None:
        """Close the descriptors that `launch` and `settle` have opened."""
        for each in (self._info, self._their_info):
            each.close()
        if self._init_fd is not None:
            os.close(self._init_fd)
            self._init_fd = None
        super().close()
