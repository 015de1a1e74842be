"""What an attempt starts from: a parent, its inspirations and its siblings."""

from dataclasses import dataclass

from costada.controller.archive import Candidate
from costada.controller.intensity import Action
from costada.controller.sampling import draw_inspirations, draw_parent
from costada.graph.state import SearchState
from costada.nodes.candidates import load_archives, load_candidate
from costada.nodes.context import RunContext, draws
from costada.prompts.request import Siblings


@dataclass(frozen=True, slots=True)
class Sources:
    """A parent (p^par), the inspirations (context set) and how the parent's children did."""

    parent: Candidate
    inspirations: tuple[Candidate, ...]
    siblings: Siblings | None


def draw_sources(state: SearchState, *, is_guided: bool, context: RunContext) -> Sources:
    """Return what the next attempt starts from; a guided one starts from the incumbent."""
    step = state["step"]
    rng = draws(state["run_seed"], state["iteration"], f"sources of attempt {step['attempt'] + 1}")
    archives = load_archives(state, context)
    archive = archives[step["frontier"]]
    drawn = draw_parent(archive, Action(step["action"]), rng)
    parent = load_candidate(state["best"], state, context) if is_guided else drawn
    count = context.settings.constants.num_inspirations
    children = archive.children_of(parent.id)
    return Sources(
        parent=parent,
        inspirations=draw_inspirations(archive, archives, parent, count),
        siblings=Siblings(parent.score, tuple(child.score for child in children))
        if children
        else None,
    )
