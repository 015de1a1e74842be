"""The offline model as a guide: ideas that fit a program, as JSON."""

import json
from random import Random

from costada.models.offline.ideas import IDEAS, Idea, has_search
from costada.models.offline.reading import shown_text
from costada.models.offline.scene import Scene
from costada.models.offline.source import read_program
from costada.values.prompt_data import PromptData

IDEAS_PER_ANSWER = 3

_TARGET = "score"
_UNFIT = 100.0


def guide_reply(view: PromptData, rng: Random) -> str:
    """Return three ideas of different approaches as one JSON object.

    Refining prompts get ideas that make what is there better, the others get new searches, as far
    as the program offers a place for them. What has failed before comes after what has not.
    """
    program = read_program(shown_text(view.program))
    scene = Scene(program) if program else None
    is_refining = view.mode == "refinement" and scene is not None and has_search(scene)

    def drawback(idea: Idea) -> float:
        is_unfit = scene is None or not idea.fits(scene)
        is_other_kind = idea.is_search == is_refining
        return list(view.failed).count(idea.approach) + 0.5 * is_other_kind + _UNFIT * is_unfit

    ranked = sorted(IDEAS, key=lambda each: (drawback(each), rng.expovariate(each.merit)))
    return json.dumps({"ideas": [_record(each) for each in ranked[:IDEAS_PER_ANSWER]]}, indent=2)


def _record(idea: Idea) -> dict[str, str]:
    return {
        "idea": idea.idea,
        "description": idea.steps,
        "what_to_optimize": _TARGET,
        "cautions": idea.cautions,
        "approach_type": idea.approach,
    }
