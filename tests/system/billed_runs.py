"""What the provider of killed runs billed, and the command that settles requests by it."""

import csv
import os
import time
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal

from crash_runs import CAP, Provider, cost_of, tokens_of
from typer.testing import CliRunner

from costada.cli.main import app

COLUMNS = "generation_id,created_at,cost_total,tokens_prompt,tokens_completion,model_permaslug"


@dataclass
class TimedProvider(Provider):
    """Remembers when it billed each prompt as well."""

    times: list[tuple[str, float]] = field(default_factory=list)

    def answer(self, body):
        self.times.append((body["messages"][-1]["content"], time.time()))
        return super().answer(body)


def export(file, record, provider, *, bills_lost, limit=CAP):
    """Write what a provider billed, if wanted also for requests that never got their answer.

    The file is as old as if it had been written two hours later. Returns the dollars.
    """
    ids = defaultdict(list)
    for each in record.done:
        ids[each.prompt].append(each.provider_id)
    rows = []
    for number, (prompt, at) in enumerate(provider.times):
        if ids[prompt] or bills_lost:
            name = ids[prompt].pop() if ids[prompt] else f"unheard-{number}"
            rows.append(
                [name, f"{at:.0f}", cost_of(prompt, limit), *tokens_of(prompt, limit), "stand-in"]
            )
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([COLUMNS.split(","), *rows])
    os.utime(file, (time.time() + 7200,) * 2)
    return sum((row[2] for row in rows), Decimal(0))


def reconcile(*arguments):
    now = time.time()
    span = "--since", f"{now - 3600:.0f}", "--until", f"{now + 7200:.0f}"
    return CliRunner().invoke(app, ["reconcile", *map(str, arguments), *span])
