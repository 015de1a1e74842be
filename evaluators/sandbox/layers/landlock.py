"""The Landlock layer: candidates restrict themselves before they load a program.

The server is started directly and sees this machine; see `inside/confinement.py` for what holds
for its forks. It needs no privileges and no program.
"""

from costada.evaluators.sandbox.layers.protocol import SandboxLayer


class Landlock(SandboxLayer):
    """Landlock and seccomp around each candidate."""

    strength = 2
