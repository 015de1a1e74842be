"""Judges whose requests are in flight at a kill: with a gateway the ledger is the bill."""

import os
from decimal import Decimal

import pytest
from crash_runs import record_of, run_with
from judged_problems import PRICES, judged_folder
from warm import PROCESSES

from costada.models.chat_models import chat_model
from costada.plugins.gateway.gateway_of_run import stop_gateways
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.values.usage import Price

pytestmark = pytest.mark.process

TWICE = """
from openai import OpenAI

CLIENT = OpenAI(max_retries=0)


def ask(text, is_stream):
    found = CLIENT.chat.completions.create(
        model="judge", messages=[{"role": "user", "content": text}], stream=is_stream
    )
    if not is_stream:
        return float(found.choices[0].message.content)
    return float("".join(each.choices[0].delta.content or "" for each in found if each.choices))


def score(output):
    return {"combined_score": output * min(ask(f"Rate {output}", n == 1) for n in range(3))}
"""
"""An evaluator that asks the same three times, one of them as a stream."""


def run_to_end(folder, url, options):
    """Start or resume the run in a folder, in this process, to its end."""
    discover(
        folder.parent / "judged",
        chat_model("openai:writer", base_url=url, retry_wait=0, max_tokens=1000),
        out=folder,
        resume=(folder / "settings.json").exists(),
        price=Price(*PRICES["writer"]),
        **{"seed": 2, "budget": 1.0, "max_iterations": 3, "gateway": True, **options},
    )


def kill_in_flight(folder, server, providers, options, number):
    """Kill a run when so many requests are billed, before the last of them is answered."""
    given = (dict(os.environ), run_to_end, folder, server.url, options)
    process = PROCESSES.Process(target=run_with, args=given)

    def answer(body):
        reply = providers.answer(body)
        if providers.billed.total() >= number:  # several in flight may be billed at once
            process.kill()
        return reply

    server.default = answer
    process.start()
    process.join()
    server.default = providers.answer
    assert process.exitcode < 0


@pytest.fixture
def folder(tmp_path, server):
    """The folder of a run, whose gateways end with the test, before their server."""
    yield tmp_path / "run"
    stop_gateways(RunFolder(tmp_path / "run"))


@pytest.mark.parametrize("options", [{}, {"parallel": 4}, {"budget_policy": "hard"}], ids=str)
def test_what_judges_were_asked_at_kills_is_on_the_ledger_as_on_the_bill(
    folder, server, providers, options
):
    judged_folder(folder.parent / "judged", server.url, evaluator=TWICE)
    for number in (1, 4, 7):
        kill_in_flight(folder, server, providers, options, number)
    run_to_end(folder, server.url, options)
    record = record_of(folder)
    assert record.lost == []
    assert record.spent == providers.total
    assert sum((call.cost for call in record.done), Decimal(0)) == providers.total
    assert len(record.done) == providers.billed.total()
    assert {call.gateway != "" for call in record.calls} == {True}
