"""Teams that share the servers of a queue: their money, their quota, and who is next."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from costada.nodes.settings import Dollars
from costada.runs.user_input import explain
from costada.store.job_queue import Job

NAME = re.compile(r"[\w-]+")


class Team(BaseModel):
    """What a team may spend and how many of its runs run at once."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    budget: Annotated[Dollars, Field(strict=True)]
    """Dollars of its purse, which pays for all its runs; can be raised, not lowered."""

    at_once: Annotated[int, Field(strict=True, ge=1)] | None = None
    """Most runs at the same time, on all servers together; `None`: as many as there is room for."""

    priority: Annotated[int, Field(strict=True)] = 0
    """Runs of a team with a higher priority start first."""


def read_teams(file: Path) -> dict[str, Team]:
    """The teams in a TOML file, each a table with its name.

    Raises:
        ValueError: Naming the line, or the field, its value and what was expected.
        OSError: The file cannot be read.
    """
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
        for name in tables:
            if not NAME.fullmatch(name):
                raise ValueError(f"got the team {name!r}, expected letters, digits, - and _")
        found = TypeAdapter(dict[str, Team]).validate_python(tables)
    except UnicodeDecodeError:
        raise ValueError(f"{file}: is not UTF-8, expected a TOML file") from None
    except ValidationError as error:
        raise ValueError(f"{file}: {explain(error, Team.model_fields)}") from None
    except ValueError as error:  # of TOML, or the name of a team
        raise ValueError(f"{file}: {error}") from None
    if not found:
        raise ValueError(f"{file}: has no team, expected a table such as [research]")
    return found


def next_jobs(
    waiting: Sequence[Job], running: Mapping[str, int], teams: Mapping[str, Team], room: int
) -> list[Job]:
    """The jobs to start now, in this order, at most `room`.

    The team with the highest priority is next; of several, the one with the fewest runs. Within a
    team it is the job with the highest priority, and of several the oldest. No team gets more runs
    than its quota.

    Args:
        waiting: Jobs of these teams.
        running: How many jobs of each team run.
        teams: The teams by name.
        room: How many jobs can be started.
    """
    counts = {name: running.get(name, 0) for name in teams}
    left: dict[str, list[Job]] = {}
    for job in sorted(waiting, key=lambda job: (job.priority, -job.number)):
        left.setdefault(job.team, []).append(job)  # the next one is the last
    chosen: list[Job] = []
    while len(chosen) < room:
        able = [name for name in left if left[name] and counts[name] < (teams[name].at_once or inf)]
        if not able:
            break
        name = min(able, key=lambda name: (-teams[name].priority, counts[name], name))
        chosen.append(left[name].pop())
        counts[name] += 1
    return chosen
