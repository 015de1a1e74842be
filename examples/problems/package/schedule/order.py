STEP = 50.0
"""Seconds in which two jobs may differ and count as equally long."""


def order(seconds):
    """The jobs in the order in which they are given to machines: the longest first."""
    return sorted(range(len(seconds)), key=lambda job: -round(seconds[job] / STEP))
