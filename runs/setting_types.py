"""Types of settings that check more than a range, and the presets of the paper."""

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat

from costada.evaluators.registry import is_built_in
from costada.evaluators.remote.engine import checked_place, endpoint_place
from costada.models.providers import checked_address
from costada.reports.tracking import tracker_names
from costada.values.provider_error import YEAR
from costada.values.setting import OBJECT_MARK, unknown_name
from costada.values.usage import Price


@dataclass(frozen=True, slots=True)
class Preset:
    """One model of the paper's experiments.

    Attributes:
        price: Dollars per million input and output tokens (App. D.1).
        budget: `B` in dollars (Sec. 5.1).
        reference_cost: `c-bar` in dollars, the expected cost of a step (App. B.1).
    """

    price: Price
    budget: float
    reference_cost: float


PRESETS = {
    "glm-5": Preset(Price(Decimal("0.60"), Decimal("1.92")), budget=1.0, reference_cost=0.01),
    "gpt-5.4": Preset(Price(Decimal("2.50"), Decimal("15.00")), budget=5.0, reference_cost=0.1),
}


NO_TRACKER = "none"
TRACKERS = (*tracker_names(), NO_TRACKER)


def _absolute_folder(problem: str) -> str:
    """Keep the absolute path of a problem folder, so that resuming works from anywhere."""
    is_folder = not is_built_in(problem) and Path(problem).is_dir()
    return str(Path(problem).resolve()) if is_folder else problem


def _known_preset(name: str) -> str:
    if name not in PRESETS:
        raise ValueError(unknown_name("preset", name, PRESETS))
    return name


def _known_place(place: str) -> str:
    return place if place.startswith(OBJECT_MARK) else checked_place(place)


def _known_endpoint(place: str) -> str:
    endpoint_place(place)
    return place


def _tracker_names(given: object) -> object:
    """Read one name, several with commas, or a list of them; `none` stands for no tracker."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list | tuple):
        return given
    names = [name.strip() for text in texts for name in str(text).split(",")]
    if names == [NO_TRACKER]:
        return ()
    if NO_TRACKER in names:
        raise ValueError(f"got {NO_TRACKER} with others, expected it alone")
    if unknown := [name for name in names if name not in tracker_names()]:
        raise ValueError(unknown_name("tracker", unknown[0], TRACKERS))
    if len(set(names)) < len(names):
        raise ValueError("expected different trackers")
    return tuple(names)


ProblemName = Annotated[str, Field(min_length=1), AfterValidator(_absolute_folder)]
PresetName = Annotated[str, AfterValidator(_known_preset)]
Address = Annotated[str, AfterValidator(checked_address)]
EndpointPlace = Annotated[str, AfterValidator(_known_endpoint)]
EvaluationPlace = Annotated[str, AfterValidator(_known_place)]
Trackers = Annotated[tuple[str, ...], BeforeValidator(_tracker_names)]
Seconds = Annotated[FiniteFloat, Field(gt=0, le=YEAR)]
