"""What an attempt starts from: a parent, its inspirations and how earlier attempts went."""

from dataclasses import dataclass

from costada.controller.archive import Candidate
from costada.controller.method import Controller, ParentRule
from costada.controller.step import draw_attempt
from costada.nodes.allocate_frontier import allocation_of
from costada.nodes.candidates import load_archives, load_candidate
from costada.nodes.context import RunContext
from costada.nodes.state import SearchState
from costada.prompts.requests import PreviousAttempt, Siblings
from costada.store.candidates import SEED_ID


@dataclass(frozen=True, slots=True)
class Sources:
    """A parent (p^par), the inspirations (context set) and how earlier attempts went.

    Attributes:
        parent: The candidate to change.
        inspirations: Candidates shown beside it.
        siblings: How the parent's children did, where that is shown.
        label: What a search strategy said of the parent.
        wording: The words for that label.
        previous: Earlier candidates of the run, where they are shown.
    """

    parent: Candidate
    inspirations: tuple[Candidate, ...]
    siblings: Siblings | None
    label: str = ""
    wording: str = ""
    previous: tuple[PreviousAttempt, ...] = ()


def draw_sources(
    controller: Controller, state: SearchState, *, is_guided: bool, context: RunContext
) -> Sources:
    """Return what the next attempt starts from; a guided one starts from the incumbent."""
    if controller.parents is ParentRule.SEED:
        return Sources(load_candidate(SEED_ID, state, context), (), None)
    step, archives = state["step"], load_archives(state, context)
    parent, inspirations = draw_attempt(
        archives,
        allocation_of(step),
        state["iteration"],
        step["attempt"] + 1,
        state["run_seed"],
        context.constants,
        incumbent=load_candidate(state["best"], state, context) if is_guided else None,
    )
    children = archives[step["frontier"]].children_of(parent.id)
    return Sources(
        parent=parent,
        inspirations=inspirations,
        siblings=Siblings(parent.score, tuple(child.score for child in children))
        if children
        else None,
    )
