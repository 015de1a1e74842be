"""The ideas the offline model knows: what it proposes as a guide and carries out as a generator.

All are general searches and program changes. Each is known by its approach, the name of a library
function, which is how a tactic finds its way back to the edit that carries it out.
"""

import re
from dataclasses import dataclass
from functools import partial
from random import Random

from costada.models.offline.loop_edits import repeat_corrections, use_slack
from costada.models.offline.program import EditKind, Scene
from costada.models.offline.search_edits import (
    METHODS,
    cheaper_scoring,
    more_evaluations,
    polish,
    search_with,
    shrink_step,
)
from costada.models.offline.small_edits import disturb_array


@dataclass(frozen=True, slots=True)
class Idea:
    """One thing to try.

    Attributes:
        approach: The library function it rests on; no two ideas share one.
        idea: The idea in a sentence.
        steps: How to carry it out, in sentences.
        cautions: What can go wrong.
        words: A pattern that finds the idea in the words of a tactic by another model.
        edit: What carries it out.
        merit: How readily it is proposed, relative to the others.
        is_search: Whether it makes a new search of a program, not a better one.
    """

    approach: str
    idea: str
    steps: str
    cautions: str
    words: str
    edit: EditKind
    merit: float
    is_search: bool = False

    def fits(self, scene: Scene) -> bool:
        """Whether a program offers a place for the idea."""
        return self.edit(scene, Random(0)) is not None


_SEARCH_STEPS = (
    "Take the array the constructor has built as the starting point. "
    "Put the statements that follow it, up to the number the program computes, into a nested "
    "function, so that any other array can be scored in the same way. {move} "
    "Keep the best array found and let the program go on with it. "
    "Use a seeded generator and a fixed number of evaluations, few at first."
)

_SEARCHES = {
    "array_search": (
        "Improve the constructed array by small random shifts of all entries at once.",
        "Add normal noise to the whole array and score the result, again and again.",
        r"hill|random.{0,20}(shift|search|perturb)|perturb",
        1.5,
    ),
    "row_search": (
        "Improve the constructed array row by row with random shifts.",
        "Shift one randomly chosen row by normal noise and score the result, again and again.",
        r"row|coordinate.{0,20}random|local search|one (point|item)",
        2.0,
    ),
    "annealing": (
        "Anneal the constructed array: accept losses early, hardly any late.",
        "Shift one row at a time and accept a loss with a probability that falls with its size "
        "and with the time used up.",
        r"anneal|temperature|metropolis",
        3.0,
    ),
    "compass_search": (
        "Probe single entries of the constructed array up and down with a shrinking step.",
        "Try both directions along one entry at a time, and halve the step once all have failed.",
        r"pattern search|compass|coordinate (descent|search)|nelder|powell",
        1.0,
    ),
    "restart_search": (
        "Search from several starting arrays and keep the best end.",
        "Search from the constructed array and from random ones in the same range, with an equal "
        "share of the evaluations each.",
        r"multi-?start|restart|several start|basin",
        0.7,
    ),
    "gradient_search": (
        "Follow a numerical gradient of the program's own score.",
        "Hand the flattened array to a quasi-Newton method that estimates the gradient by "
        "differences, beginning a little beside the array so that ties are broken.",
        r"scipy\.optimize|gradient|slsqp|l-bfgs|bfgs|trust-constr|newton",
        0.5,
    ),
}

_REFINEMENTS = (
    Idea(
        "numpy.linalg.norm",
        "Compute what nested loops need before they begin, in one vectorised statement.",
        "Find the expression of two rows that the inner loop computes anew each time. Compute it "
        "for all pairs of rows at once and store the table. Read the table inside the loop. "
        "Turn arrays of which the loop reads single entries into lists. "
        "Spend the time this saves on more evaluations.",
        "The values must stay the same to the last digit that matters.",
        r"vectori[sz]|broadcast|hoist|precompute|cache|faster",
        cheaper_scoring,
        8.0,
    ),
    Idea(
        "numpy.minimum",
        "Let entries that were lowered pair by pair rise again as far as their limits allow.",
        "A greedy loop over pairs lowers both entries and never looks back. Remember the entries "
        "as they were before the loop. After it, visit the entries once more. For each, compute "
        "the least room its own limits leave. Raise it to that value, which no limit forbids.",
        "The remembered values are limits too.",
        r"slack|greedy|tighten|linprog|linear program|grow|feasib",
        use_slack,
        4.0,
    ),
    Idea(
        "numpy.power",
        "Make corrections gentle and repeat them instead of doing them at once.",
        "Wrap the loop that multiplies entries by a factor in three passes. In the first pass use "
        "the cube root of the factor. In the second use the square root of what is needed then. "
        "In the last use the whole factor. So no entry pays alone for coming early.",
        "The last pass must be a full correction, else limits stay violated.",
        r"relax|passes|damp|gentle|iterative correction",
        repeat_corrections,
        0.7,
    ),
    Idea(
        "numpy.geomspace",
        "Shrink the step of the search while it goes on.",
        "Large steps find the region and small ones the spot. Count the turns of the search. "
        "Multiply the step by the share of turns that is left. Leave the number of evaluations "
        "as it is. Nothing else changes.",
        "A step that shrinks too early freezes the array.",
        r"schedule|decay|shrink|step size|cooling|adaptive",
        shrink_step,
        2.0,
    ),
    Idea(
        "numpy.arange",
        "Give the search twice the evaluations.",
        "The search still improves when it ends. Double its number of evaluations. Estimate the "
        "time of one evaluation from the loops it runs. Stay within the time of one short run. "
        "Keep the step and the seed.",
        "The time limit holds for the whole program.",
        r"iteration|evaluation|budget|longer|more steps",
        partial(more_evaluations, 2.0),
        6.0,
    ),
    Idea(
        "numpy.ndenumerate",
        "Polish the result of the search with a much smaller step.",
        "Keep the search as it is. Put a second one behind it that begins where the first ends. "
        "Use a step of a twentieth. Give it a third of the evaluations. Keep its result only if "
        "it scores higher.",
        "Without time for both, the first search must become shorter.",
        r"polish|fine-?tun|second stage|final",
        polish,
        1.5,
    ),
    Idea(
        "numpy.random.Generator.standard_normal",
        "Begin from a slightly disturbed array.",
        "Symmetric arrays hold the search back, for every change of one entry breaks the pattern. "
        "Add a little normal noise before anything is scored. Use a fixed seed. Keep the size of "
        "the noise to a few hundredths. Leave everything else as it is.",
        "Too much noise destroys what the construction is good for.",
        r"symmetr|noise|jitter|initiali[sz]|start(ing)? (point|position)",
        disturb_array,
        0.7,
    ),
)


IDEAS = (
    *(
        Idea(
            approach=METHODS[name].approach,
            idea=idea,
            steps=_SEARCH_STEPS.format(move=move),
            cautions="Return a valid array even if nothing better is found; bound the evaluations.",
            words=words,
            edit=partial(search_with, METHODS[name]),
            merit=merit,
            is_search=True,
        )
        for name, (idea, move, words, merit) in _SEARCHES.items()
    ),
    *_REFINEMENTS,
)


def find_idea(approach: str, text: str) -> Idea | None:
    """The idea of that approach, else the first whose words occur in the text."""
    for idea in IDEAS:
        if idea.approach == approach.strip().rstrip("()"):
            return idea
    text = " ".join(text.split())
    return next((idea for idea in IDEAS if re.search(idea.words, text, re.IGNORECASE)), None)
