"""The tables of `folders.py`."""

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

UNCHANGED = "unchanged"
STAGES = (UNCHANGED, "adopted", "prepared", "declared")
REFUSED = "refused"
TOLERANCE = 1e-6
"""Relative difference of scores that count as the same."""


@dataclass
class Row:
    """What is known of one folder.

    `stages` has, by layer, how far it had to climb, and `score` is that of the first layer.
    """

    folder: str
    contract: str = ""
    stages: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    score: float | None = None
    own_score: float | None = None
    own_reason: str = ""
    seconds: float = 0.0
    log: str = ""
    metrics: dict[str, str] = field(default_factory=dict)
    own_metrics: dict[str, str] = field(default_factory=dict)

    @property
    def tool(self) -> str:
        """The checkout that the folder is in."""
        return self.folder.partition("/")[0]

    @property
    def name(self) -> str:
        """The folder below the checkout's folder of examples."""
        return self.folder.split("/", 2)[-1]

    @property
    def has_own(self) -> bool:
        """Whether the folder's own tool was tried."""
        return self.own_score is not None or bool(self.own_reason)

    @property
    def is_same(self) -> bool | None:
        """Whether both scores are the same; None if one is unknown."""
        if self.score is None or self.own_score is None:
            return None
        return abs(self.score - self.own_score) <= TOLERANCE * max(1.0, abs(self.own_score))


def show(rows: Sequence[Row], layers: Sequence[str], beside: Mapping[str, Row], width: int) -> None:
    """Print how many folders climbed how far in each layer, and a table of each tool."""
    columns = ["layer", *STAGES, "start", REFUSED]
    _print_line(["tool", "folders", *columns])
    _print_line(["---"] * (len(columns) + 2))
    tools = [*dict.fromkeys(row.tool for row in rows)]
    for tool in (*tools, ""):
        own = [row for row in rows if tool in (row.tool, "")]
        for layer in layers:
            count = Counter(row.stages.get(layer, REFUSED) for row in own)
            starting = len(own) - count[REFUSED]
            numbers = [*(count[stage] for stage in STAGES), starting, count[REFUSED]]
            _print_line([tool or "all", len(own), layer, *numbers])
    if beside:
        print()
        _print_line(["tool", "folders", "unchanged in the tool's environment"])
        _print_line(["---"] * 3)
    for tool in (*tools, "") if beside else ():
        own = [row for row in rows if tool in (row.tool, "")]
        starting = [row for row in own if _stage_beside(row, beside) == UNCHANGED]
        _print_line([tool or "all", len(own), len(starting)])
    for tool in tools:
        own = [row for row in rows if row.tool == tool]
        print(f"\n## {tool}\n")
        columns = [*layers, *(["in its environment"] if beside else [])]
        _print_line(["folder", "contract", *columns, "score", "their score", "what it lacks"])
        _print_line(["---"] * (len(columns) + 5))
        for row in own:
            climbed = [row.stages.get(layer, REFUSED) for layer in layers]
            there = [_stage_beside(row, beside)] if beside else []
            reason = shortened(row.reason, width) if REFUSED in climbed else ""
            _print_line(
                [
                    f"`{row.name}`",
                    row.contract,
                    *climbed,
                    *there,
                    *_scores(_with_own_score(row, beside)),
                    reason,
                ]
            )
    pairs = [_with_own_score(row, beside).is_same for row in rows]
    compared = [is_same for is_same in pairs if is_same is not None]
    print(f"\nOf {len(compared)} scores compared, {sum(compared)} are the same.")


def shortened(text: str, width: int) -> str:
    """The first words of a text that fit."""
    return textwrap.shorten(" ".join(text.split()), width, placeholder=" ...")


def _stage_beside(row: Row, beside: Mapping[str, Row]) -> str:
    """How far a folder climbs in its tool's environment; empty if that was not tried."""
    return next(iter(beside[row.folder].stages.values()), "") if row.folder in beside else ""


def _with_own_score(row: Row, beside: Mapping[str, Row]) -> Row:
    """A row with the score of the folder's own tool, and that here in the same environment."""
    other = beside.get(row.folder)
    if row.has_own or other is None:
        return row
    return replace(other, score=row.score if other.score is None else other.score)


def _scores(row: Row) -> list[str]:
    """The score here, and with the folder's own tool, or why there is none."""
    mark = "~" if row.is_same is False else ""
    here = "" if row.score is None else f"{mark}{row.score:.8g}"
    there = shortened(row.own_reason, 60) if row.own_score is None else f"{mark}{row.own_score:.8g}"
    return [here, there]


def _print_line(cells: Sequence[object]) -> None:
    print("| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |")
