"""The collection: programs with what they attempt and what must come of it.

`programs/CATEGORY.txt` holds the programs of one category one after the other. Each starts with
a header of `# field: value` lines, `# name:` first. Functions of `preludes` that a program calls
without defining them are added to it. The source of a program with a field `made` is in `made`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hostile import made, preludes

HERE = Path(__file__).parent
SHARED = HERE.parents[4] / "shared" / "hostile"
HONEST = 2.515
LAYERS = ("process", "landlock", "bubblewrap", "container")
"""From the weakest to the strongest; each after the first also has Landlock."""

CONFINED = ("files", "network", "persistence", "process", "secrets", "tampering")
LIMITS = ("control", "exit", "memory", "protocol", "time")
OWN_CATEGORIES = {
    "landlock": CONFINED,
    "bubblewrap": (*LIMITS, *CONFINED),
    "container": ("files", "network"),
}
"""What of our own programs is tried in a layer: all in the first, then what others change."""

WITHOUT_MODELS = ("memory", "time")
"""Stopped from outside, whatever a program is connected to: tried without models only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One candidate, and what its evaluation must look like."""

    name: str
    category: str
    attempts: str
    must: str  # what must happen, in words
    expect: str  # reject | honest | honest_range | flag | accept | accept_or_clear_reject
    scores: tuple[float, float] = (HONEST - 1e-6, HONEST + 1e-6)  # objectives that are honest
    says: tuple[str, ...] = ()  # texts of which the error must hold one; empty: any reason will do
    needs: str = "process"  # the weakest layer that stops it; below, only survival is checked
    tags: tuple[str, ...] = ()  # timeout, memory: small limits; danger: not run if nothing stops it
    is_own: bool = True
    source: str

    def is_stopped_by(self, layer: str) -> bool:
        return LAYERS.index(layer) >= LAYERS.index(self.needs)

    def is_run_in(self, layer: str, *, with_models: bool = False) -> bool:
        is_due = not self.is_own or self.category in OWN_CATEGORIES.get(layer, (self.category,))
        is_due = is_due and not (with_models and self.category in WITHOUT_MODELS)
        return is_due and (self.is_stopped_by(layer) or "danger" not in self.tags)


MUST = {
    "reject": "score 0, with an error that says what happened",
    "honest": "the score of the plain data that came back, or a clear rejection",
    "honest_range": "a score of the plain data that came back, or a clear rejection",
    "flag": "rejected, or credited with a note on the tolerance used",
    "accept": "accepted with its honest score",
    "accept_or_clear_reject": "accepted, or rejected with an error that names the policy",
}


def own_programs() -> list[Program]:
    files = sorted((HERE / "programs").glob("*.txt"))
    return [
        program for path in files for program in _read(path.stem, path.read_text(encoding="utf-8"))
    ]


def shared_programs() -> list[Program]:
    if not SHARED.exists():
        return []
    entries = json.loads((SHARED / "index.json").read_text())["programs"]
    return [_from_entry(entry) for entry in entries]


def _from_entry(entry: dict) -> Program:
    low, high = entry.get("honest_range") or [entry.get("honest_score", HONEST)] * 2
    tolerance = entry.get("honest_tol", 1e-6)
    return Program(
        name=f"shared_{entry['name']}",
        category=entry["category"],
        attempts=entry["attempts"],
        must=entry["must"],
        expect=entry["expect"],
        scores=(low - tolerance, high + tolerance),
        says=("timeout",) if "timeout" in entry.get("tags", []) else (),
        tags=tuple(entry.get("tags", ())),
        is_own=False,
        source=(SHARED / entry["file"]).read_text(encoding="utf-8"),
    )


def _read(category: str, text: str) -> Iterator[Program]:
    for block in ("\n" + text).split("\n# name: ")[1:]:
        header, _, body = f"# name: {block}".partition("\n\n")
        fields = dict(line.removeprefix("# ").split(": ", 1) for line in header.splitlines())
        low, *high = (float(number) for number in fields.pop("scores", str(HONEST)).split())
        maker = fields.pop("made", None)
        source = made.SOURCES[maker] if maker else preludes.complete(f"{header}\n\n{body}")
        yield Program(
            category=category,
            must=fields.pop("must", MUST[fields["expect"]]),
            scores=(low - 1e-6, (high or [low])[0] + 1e-6),
            says=_listed(fields.pop("says", ""), "|"),
            tags=_listed(fields.pop("tags", ""), ","),
            source=source,
            **fields,
        )


def _listed(text: str, separator: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(separator) if part.strip())
