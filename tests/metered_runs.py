"""Runs in which everyone asks models: generator command, guide, judge and the programs under test.

A provider with prices keeps the bill, whoever asks.
"""

import json
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from billing_server import Reply
from crash_runs import Record, record_of
from fakes import SEED_PROGRAM
from generator_commands import asking
from judged_problems import ASKING, PRICES, Providers, cost_of, judged_folder

from costada.models.chat_models import chat_model
from costada.runs.discovery import discover
from costada.store.rows import CallRow, CallStatus
from costada.store.run_store import RunStore
from costada.values.usage import Price

ROLES = {"generation", "retry", "guide", "evaluation", "candidate"}

CAP = 1000

MODELS = {"evaluation": "judge-large", "candidate": "judge-small"}
"""The models at the provider by the role of calls; all others go to the writer."""

JUDGING = f"""{ASKING}

def score(output):
    large, same = (ask("judge", f"Is it large? {{output}}") for _ in range(2))
    return {{"combined_score": min(1.0, output * large * same * ask("judge", "Is it round?"))}}
"""
"""An evaluator that asks one question twice and another one once."""

AGENT = f"""{ASKING}
# EVOLVE-BLOCK-START
def value():
    return 0.10 * ask("agent", "How large is 0.10?")
# EVOLVE-BLOCK-END
"""


class EveryProvider(Providers):
    """Answers writers with programs that ask a model themselves."""

    def answer(self, body) -> Reply:
        reply = super().answer(body)
        if SEED_PROGRAM.split("0.10")[0] not in str(reply.text):
            return reply
        before, _, rest = str(reply.text).partition(SEED_PROGRAM.split("0.10")[0])
        value, _, after = rest.partition("\n# EVOLVE-BLOCK-END\n")
        return Reply(
            before + AGENT.replace("0.10", value) + after,
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
        )

    def forget(self) -> None:
        """Begin a new bill."""
        self.billed.clear()
        self.bill.clear()


def metered_folder(folder: Path, url: str) -> Path:
    """Write a problem whose evaluator and whose programs ask models."""
    judged_folder(folder, url, JUDGING, settings="evaluation_dollars = 0.06")
    (folder / "initial_program.py").write_text(AGENT)
    price_in, price_out = PRICES["judge-small"]
    with (folder / "problem.toml").open("a") as file:
        file.write(
            f"[candidate_models.agent]\nmodel = 'openai:judge-small'\nbase_url = '{url}'\n"
            f"price = '{price_in},{price_out}'\nmax_tokens = 500\n"
        )
    return folder


def run_metered(folder: Path, url: str, options: dict[str, object]) -> None:
    """Start or resume the run in a folder, in this process, to its end."""
    discover(
        folder.parent / "metered",
        chat_model("openai:writer", base_url=url, retry_wait=0, max_tokens=CAP),
        out=folder,
        resume=(folder / "settings.json").exists(),
        price=Price(*PRICES["writer"]),
        generator=asking(2),
        timeout=60.0,
        **{"seed": 2, "budget": 1.0, **options},
    )


@dataclass(frozen=True)
class Comparison:
    """The ledger of a run beside the bill, in dollars.

    Attributes:
        bill: What the provider charges.
        spent: What the run has spent, by its ledger.
        known: What completed requests cost, by the ledger.
        roles: Roles of the calls on the ledger.
        num_done: Requests that were completed.
        num_lost: Those that count at their bound.
        num_billed: Requests that the provider has answered.
        num_repeated: Answers that were paid for although the ledger had them.
        step_gap: Sum of the differences between c_t and the calls of the step, over all steps.
    """

    bill: Decimal
    spent: Decimal
    known: Decimal
    roles: frozenset[str]
    num_done: int
    num_lost: int
    num_billed: int
    num_repeated: int
    step_gap: Decimal


def compare(folder: Path, providers: Providers) -> Comparison:
    """Compare the ledger of a run with the bill of the provider."""
    record = record_of(folder)
    done, doubtful = Counter(map(_asked, record.done)), Counter(map(_asked, record.calls))
    for call in record.done:
        tokens = call.usage.input_tokens, call.usage.output_tokens
        assert call.cost == cost_of(_asked(call)[0], *tokens)
    assert all(done[each] <= times for each, times in providers.billed.items())
    assert done.keys() <= providers.billed.keys()
    open_calls = [call for call in record.calls if call.status is CallStatus.STARTED]
    assert open_calls == []
    return Comparison(
        bill=providers.total,
        spent=record.spent,
        known=sum((call.cost for call in record.done), Decimal(0)),
        roles=frozenset(call.role for call in record.calls),
        num_done=len(record.done),
        num_lost=len(record.lost),
        num_billed=providers.billed.total(),
        num_repeated=sum((providers.billed - doubtful).values()),
        step_gap=_step_gap(folder, record),
    )


def _asked(call: CallRow) -> tuple[str, str]:
    """The model that a request went to, and its last message."""
    model = MODELS.get(call.role, "writer")
    if call.role == "guide":
        return model, call.prompt
    return model, str(json.loads(call.prompt)["messages"][-1]["content"])


def _step_gap(folder: Path, record: Record) -> Decimal:
    by_ticket: dict[int, Decimal] = {}
    for call in record.calls:
        before = by_ticket.get(call.ticket, Decimal(0))
        by_ticket[call.ticket] = before + call.cost + call.bound
    gap = Decimal(0)
    with RunStore(folder / "run.sqlite", is_read_only=True) as store:
        run_id = store.run_ids()[-1]
        accounts = [by_ticket.pop(0)]
        for row in map(json.loads, record.steps.splitlines()):
            # A step that money ends has none.
            cost = by_ticket.pop(row["ticket"], Decimal(0))
            accounts.append(store.ledger.spent(run_id, row["iteration"]))
            gap += abs(accounts[-1] - accounts[-2] - cost)
            assert row["step_cost"] == float(cost)
            by_role = row.get("dollars_by_role") or {"generation": row["step_cost"]}
            gap += abs(sum(Decimal(str(dollars)) for dollars in by_role.values()) - cost)
    assert not by_ticket
    return gap
