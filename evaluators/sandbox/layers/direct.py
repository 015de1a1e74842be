"""The layers whose server is started directly and sees this machine: landlock, process and none.

They need no privileges and no program. Under landlock, candidates restrict themselves before they
load a program; see `inside/confinement.py` for what holds for the forks of a server.
"""

from collections.abc import Callable, Mapping

from costada.evaluators.sandbox.layers.protocol import SandboxLayer
from costada.evaluators.sandbox.limits import Limits


class Landlock(SandboxLayer):
    """Landlock and seccomp around each candidate."""

    strength = 2


class Process(SandboxLayer):
    """Candidates are bounded and leave nothing, but can do what their user can.

    Where Linux allows it, they are in a pid namespace of their own.
    """

    strength = 1
    confines = False
    auto_warning = (
        "sandbox: only the process layer works here, so programs can read your files and use the"
        " network; install bubblewrap, or use a Linux kernel with Landlock (5.13 or newer)"
    )

    @classmethod
    def may_change_modes(cls) -> bool:
        """Always."""
        return True

    @classmethod
    def probe(cls, attempt: Callable[[Limits], Mapping[str, bool]]) -> str | None:
        """Nothing that succeeds counts against it: it works if a slot starts."""
        # Nothing keeps the probe from forking, so the watch over processes must not end it.
        attempt(Limits(processes=1))
        return None


class Unlimited(Process):
    """For trusted code on a machine where limits are in the way."""

    strength = 0
    is_automatic = False
    has_limits = False
