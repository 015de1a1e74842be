from costada.values.candidate import Candidate, Program


def population_row(id, iteration, score, parent_id=None, label="", inspirations=()):
    """A candidate of which only its descent matters."""
    return Candidate(
        id=id,
        program=Program.of(""),
        iteration=iteration,
        score=score,
        parent_id=parent_id,
        label=label,
        inspirations=tuple(inspirations),
    )
