"""The draw of a parent for an action, and the choice of its inspirations."""

from collections.abc import Sequence
from random import Random

from costada.controller.archive import Archive, novelty
from costada.controller.distance import code_distance
from costada.controller.intensity import Action
from costada.values.candidate import Candidate
from costada.values.program import Program


def draws(seed: int, iteration: int, purpose: str) -> Random:
    """The random numbers for one purpose in one iteration, the same on every execution."""
    return Random(f"{seed}/{iteration}/{purpose}")


MIN_NOVELTY = 0.001
"""Smallest weight in the roulette, so that a look-alike keeps a chance."""

LOCAL_SHARE = 0.6
"""Part of the inspirations that comes from the frontier of the parent."""


def draw_parent(archive: Archive, action: Action, rng: Random) -> Candidate:
    """The candidate to edit (p^par, Alg. 1).

    Exploitation draws from the best quarter, exploration by novelty, and balanced tosses a coin
    between the best fifth and novelty.

    Raises:
        ValueError: The archive is empty.
    """
    if not archive.members:
        raise ValueError("members: got none, expected at least the seed")
    if action is Action.EXPLOITATION:
        return rng.choice(archive.top(max(1, len(archive.members) // 4)))
    if action is Action.BALANCED and rng.random() < 0.5:
        return rng.choice(archive.elite())
    return _draw_by_novelty(archive, rng)


def _draw_by_novelty(archive: Archive, rng: Random) -> Candidate:
    weights = [max(novelty(member, archive), MIN_NOVELTY) for member in archive.members]
    return rng.choices(archive.members, weights)[0]


def draw_inspirations(
    archive: Archive, archives: Sequence[Archive], parent: Candidate, count: int
) -> tuple[Candidate, ...]:
    """The candidates shown next to the parent (context set, Alg. 1).

    First those of the frontier that differ most from the parent among its better half, then the
    best of all frontiers. A text appears once; the parent's own text does not appear.

    Args:
        archive: Archive of the step's frontier.
        archives: Archives of all frontiers, by index.
        parent: The drawn parent; it may come from another frontier.
        count: Candidates wanted, at least 0; fewer when texts repeat or members are few.
    """
    if count == 0:
        return ()
    num_local = max(1, int(count * LOCAL_SHARE))
    chosen = (
        *_most_different(archive, parent, num_local),
        *_best_of_all(archives, parent, count - num_local),
    )
    distinct: dict[Program, Candidate] = {}
    for candidate in chosen:
        distinct.setdefault(candidate.program, candidate)
    distinct.pop(parent.program, None)
    return tuple(distinct.values())


def _most_different(archive: Archive, parent: Candidate, count: int) -> list[Candidate]:
    better_half = archive.top(max(2 * count, len(archive.members) // 2))
    others = [member for member in better_half if member.id != parent.id]
    others.sort(key=lambda member: -code_distance(member.program.text, parent.program.text))
    return others[:count]


def _best_of_all(archives: Sequence[Archive], parent: Candidate, count: int) -> list[Candidate]:
    members = (member for archive in archives for member in archive.members)
    others = [member for member in members if member.id != parent.id]
    others.sort(key=lambda member: -member.score)
    return others[:count]
