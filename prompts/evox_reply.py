"""Replies to the prompts that only EvoX sends: labels and strategies."""

import re
from dataclasses import dataclass

from costada.prompts.definitions import defined_names
from costada.prompts.fences import find_fences
from costada.prompts.parse import MAX_PROGRAM_CHARACTERS, UNREADABLE, Rejection

CLASS_NAME = "Strategy"
"""What the program of a strategy defines."""

MAX_POINTS = 8
POINT_LIMIT = 500
"""How many points of a label are kept, and how many characters of each."""

_HEADING = re.compile(r"[#*`\s]*(?P<label>diverge|refine)\b[*:`\s]*", re.IGNORECASE)
_OTHER_HEADING = re.compile(r"#{1,6}\s")
_BULLET = re.compile(r"\s*(?:[-*•+]|\d+[.)])\s+(?P<text>\S.*)")


@dataclass(frozen=True, slots=True)
class Labels:
    """The advice that goes with the two labels, as lists of points; empty if there is none.

    Attributes:
        diverge: Approaches of another kind.
        refine: What can be made better without a new approach.
    """

    diverge: str = ""
    refine: str = ""


def parse_labels(reply: str) -> Labels:
    """Return the points below the two headings of a reply; a label without points stays empty."""
    points: dict[str, list[str]] = {"diverge": [], "refine": []}
    current: list[str] | None = None
    for line in reply.replace("\r\n", "\n").split("\n"):
        heading = _HEADING.fullmatch(line)
        if heading:
            current = points[heading["label"].lower()]
            current.clear()
        elif _OTHER_HEADING.match(line):
            current = None
        elif current is not None:
            _take_line(line, current)
    return Labels(_listed(points["diverge"]), _listed(points["refine"]))


def parse_strategy(reply: str) -> str | Rejection:
    """Return the program of a new strategy, or why a reply holds none.

    Among several fenced programs the last that defines the class is taken.
    """
    text = reply.replace("\r\n", "\n")
    fences = [fence for fence in find_fences(text) if CLASS_NAME in defined_names(fence.text)]
    closed = [fence.text for fence in fences if fence.is_closed]
    if fences and not closed:
        return Rejection("The answer ends before its program is complete.")
    if not closed and CLASS_NAME in defined_names(text) and "```" not in text:
        closed = [text]
    if not closed:
        return Rejection(
            f"The answer holds no fenced program with `class {CLASS_NAME}` at its top level."
        )
    source = closed[-1].strip("\n") + "\n"
    if len(source) > MAX_PROGRAM_CHARACTERS:
        return Rejection(
            f"The program has {len(source)} characters;"
            f" at most {MAX_PROGRAM_CHARACTERS} are allowed."
        )
    if UNREADABLE.search(source):
        return Rejection("The program holds a character that cannot be encoded.")
    return source


def _take_line(line: str, points: list[str]) -> None:
    """Begin a new point with a bullet, or go on with the one before."""
    bullet = _BULLET.match(line)
    if bullet:
        points.append(bullet["text"].strip())
    elif points and line.strip() and not line.lstrip().startswith("```"):
        points[-1] += " " + line.strip()


def _listed(points: list[str]) -> str:
    return "\n".join(f"- {point[:POINT_LIMIT]}" for point in points[:MAX_POINTS])
