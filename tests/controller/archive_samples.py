"""Candidates and archives the tests of this folder share."""

from costada.controller.archive import Archive, Candidate


def candidate(
    id: str,
    score: float,
    code: str | None = None,
    *,
    parent_id: str | None = None,
    iteration: int = 0,
) -> Candidate:
    """Return a candidate whose text is its own unless one is given."""
    text = f"{id} = {id}" if code is None else code
    return Candidate(id, text, score, parent_id, iteration, 1, {"speed": 2.0}, {"note": "x"}, "")


def archive(*members: Candidate, size: int = 20) -> Archive:
    """Return an archive that holds the members in this order."""
    return Archive(members, size)


def ids(members: tuple[Candidate, ...]) -> list[str]:
    """Return the ids of the members, in order."""
    return [member.id for member in members]
