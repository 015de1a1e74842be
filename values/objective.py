"""An objective of several: a metric of the evaluator, and which way it improves."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from typing_extensions import TypedDict

WAYS = ("max", "min")


@dataclass(frozen=True, slots=True)
class Objective:
    """One of the objectives of a problem, written as `name:max` or `name:min`.

    Attributes:
        metric: Name of the metric that the evaluator reports.
        way: `max` if higher values are better, `min` if lower ones are.
    """

    metric: str
    way: str

    @classmethod
    def read(cls, text: object) -> Self:
        """The objective of a text such as `speed:max`.

        Raises:
            ValueError: It is not a text of that form.
        """
        metric, _, way = str(text).rpartition(":")
        if not isinstance(text, str) or not metric.strip() or way not in WAYS:
            raise ValueError(f"{text!r}; expected a string such as 'speed:max' or 'memory:min'")
        return cls(metric.strip(), way)

    @property
    def name(self) -> str:
        """The objective as it is written."""
        return f"{self.metric}:{self.way}"

    def gain(self, value: float) -> float:
        """A value of the metric as a number of which more is better."""
        return value if self.way == "max" else -value


class FrontMember(TypedDict):
    """A candidate on the Pareto front: its id, its score and its objectives, as `speed:max`."""

    candidate_id: str
    score: float
    objectives: dict[str, float | None]


def read_objectives(texts: Iterable[object]) -> tuple[Objective, ...]:
    """The objectives of a problem; raises as `Objective.read` does."""
    return tuple(map(Objective.read, texts))


def objective_values(
    objectives: Iterable[Objective], metrics: Mapping[str, float]
) -> dict[str, float | None]:
    """The value of each objective by its name, `None` where the metric is absent."""
    return {each.name: metrics.get(each.metric) for each in objectives}
