"""The two numbers of a step: by its launch, and by its landing.

They are equal in a run with one step in flight at a time, and differ in others. A conversion is
written out where it is made.
"""

from typing import NewType

TicketNumber = NewType("TicketNumber", int)
"""Number of a ticket, from 1 in the order of launching; 0 stands for the start of a run.

It keys a step's calls, candidates and random draws, and never changes.
"""

Iteration = NewType("Iteration", int)
"""Number of an iteration (t), from 1 in the order of landing; 0 is the start of a run.

Charges, trace rows, tactics and migrations have it, and all that a user or a model reads.
"""

START_TICKET = TicketNumber(0)
FIRST_TICKET = TicketNumber(1)
START = Iteration(0)


def next_iteration(iteration: Iteration) -> Iteration:
    """The iteration after one."""
    return Iteration(iteration + 1)
