"""The simulated worlds: what answers the calls of a run, by name."""

from collections.abc import Callable, Mapping
from functools import partial

from costada.plugins.lab.landscape.landscape import drawn_landscape
from costada.plugins.lab.landscape.landscape_answers import Answers, LandscapeAnswers
from costada.plugins.lab.recorded.family import FAMILY, FILLED, FamilyAnswers
from costada.plugins.lab.recorded.world import RecordedAnswers, recorded_world
from costada.values.setting import unknown_name

LANDSCAPE, RECORDED = "landscape", "recorded"

WORLDS: Mapping[str, Callable[[int], Answers]] = {
    LANDSCAPE: lambda seed: LandscapeAnswers(drawn_landscape(seed)),
    RECORDED: lambda seed: RecordedAnswers(recorded_world()),
    **{world.name: partial(FamilyAnswers.of, world) for world in (*FAMILY, *FILLED.values())},
}
"""What answers the calls of a run, by the name of the world; takes the seed of the run."""


def answers_of(world: str, seed: int) -> Answers:
    """What answers the calls of a run with that seed.

    Raises:
        ValueError: There is no such world.
    """
    if world not in WORLDS:
        raise ValueError(unknown_name("world", world, WORLDS))
    return WORLDS[world](seed)
