"""Migration: every few iterations the best candidates of a frontier are copied to the next."""

from dataclasses import dataclass, replace

from costada.controller.archive import Archive
from costada.controller.constants import Constants
from costada.values.candidate import Candidate


def is_migration_due(iteration: int, constants: Constants) -> bool:
    """Whether a migration follows the completed iteration."""
    return iteration > 0 and iteration % constants.migration_interval == 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A migrant that found a place.

    Attributes:
        frontier: Index of the frontier it came to.
        candidate: The copy that entered.
    """

    frontier: int
    candidate: Candidate


def migrate(
    archives: tuple[Archive, ...], iteration: int, constants: Constants
) -> tuple[Archive, ...]:
    """The archives at the end of an iteration: the same ones when no migration is due.

    Frontiers send along a ring, the last to the first, one after the other, so that a frontier
    may pass on what it just received. Copies pass the normal insertion rule; a text the
    destination already holds is not sent.
    """
    migrated, _ = exchange(archives, iteration, constants)
    return migrated


def exchange(
    archives: tuple[Archive, ...], iteration: int, constants: Constants
) -> tuple[tuple[Archive, ...], tuple[Arrival, ...]]:
    """The archives that `migrate` returns, and every migrant that entered, in order.

    A migrant counts even if a later one took its place again.
    """
    if not is_migration_due(iteration, constants):
        return archives, ()
    ring = list(archives)
    arrivals: list[Arrival] = []
    for source in range(len(ring)):
        destination = (source + 1) % len(ring)
        for candidate in ring[source].top(constants.num_migrants):
            before = ring[destination]
            migrant = migrant_copy(candidate, destination, iteration)
            if not before.holds(migrant.program):
                ring[destination] = before.insert(migrant)
            if ring[destination] is not before:
                arrivals.append(Arrival(destination, migrant))
    return tuple(ring), tuple(arrivals)


def migrant_copy(candidate: Candidate, destination: int, iteration: int) -> Candidate:
    """The copy that travels, a child of the original with the same generation.

    Its id follows from the original's, the index of the destination and the iteration.
    """
    return replace(
        candidate,
        id=f"{candidate.id}>{destination}@{iteration}",
        parent_id=candidate.id,
        iteration=iteration,
        is_copy=True,
    )


def original_id(candidate_id: str) -> str:
    """The id of the candidate that a copy goes back to; any other id is its own."""
    return candidate_id.partition(">")[0]
