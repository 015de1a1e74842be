"""No layer at all: candidates run in a process of their own, without limits but that of time."""

from costada.evaluators.sandbox.layers.process import Process


class Unlimited(Process):
    """For trusted code on a machine where limits are in the way."""

    strength = 0
    is_automatic = False
    has_limits = False
