"""Prints what share of its lines and branches the tests reach, for each room and plug-in.

usage: python tests/coverage_by_room.py COVERAGE.json
"""

import json
import sys
from collections import defaultdict
from pathlib import Path, PurePath

COUNTS = ("covered_lines", "num_statements", "covered_branches", "num_branches")


def room_of(path: str) -> str:
    """The room of a file, or the plug-in."""
    parts = PurePath(path).parent.parts
    return "/".join(parts[: 2 if parts[:1] == ("plugins",) else 1]) or "."


def main() -> None:
    rooms: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    for path, file in json.loads(Path(sys.argv[1]).read_text())["files"].items():
        for room in (room_of(path), "total"):
            for name in COUNTS:
                rooms[room][name] += file["summary"][name]
    print(f"{'room':<20} {'lines':>7} {'branches':>9} {'both':>7}")
    for room in sorted(rooms, key=lambda name: (name == "total", name)):
        lines, statements, taken, branches = (rooms[room][name] for name in COUNTS)
        shares = (
            covered / total if total else 1.0
            for covered, total in (
                (lines, statements),
                (taken, branches),
                (lines + taken, statements + branches),
            )
        )
        print("{:<20} {:>7.1%} {:>9.1%} {:>7.1%}".format(room, *shares))


if __name__ == "__main__":
    main()
