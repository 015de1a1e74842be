"""The roles of a run's calls on its ledger: what each of them pays for."""

from collections.abc import Mapping
from dataclasses import dataclass

GENERATION, RETRY, GUIDE = "generation", "retry", "guide"
EVALUATION, CANDIDATE, COMPUTE = "evaluation", "candidate", "compute"
TOOL = "tool"
"""Results of tools, by the number of the request whose answer calls them; nothing is paid."""


@dataclass(frozen=True, slots=True)
class Role:
    """A role of calls.

    Attributes:
        text: What they pay for.
        is_judging: Whether they pay for the evaluation of a program, and not for the search for it.
    """

    text: str
    is_judging: bool = False


ROLES: Mapping[str, Role] = {
    GENERATION: Role("first attempts of steps"),
    RETRY: Role("further attempts of steps"),
    GUIDE: Role("ideas of guides"),
    EVALUATION: Role("models that evaluators ask", is_judging=True),
    CANDIDATE: Role("models that programs under test ask", is_judging=True),
    COMPUTE: Role("time of evaluations, by the compute price", is_judging=True),
}
"""All roles by name, in the order in which they are shown.

A run file may hold others, such as that of lost steps; they belong to the search.
"""

JUDGING = tuple(name for name, role in ROLES.items() if role.is_judging)
"""The roles that pay for evaluations."""

SEARCHING = tuple(name for name, role in ROLES.items() if not role.is_judging)
"""The roles that pay for the search."""
