"""Toolkits of several processes that have one purse and one parent of the run folders."""

import json
import traceback
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from itertools import chain

import pytest
from fakes import toy_folder
from served_searches import CALL_COST, better_programs, taking_time
from warm import PROCESSES

from costada.agents.toolkit import create_discovery_toolkit
from costada.models.chat_models import chat_model
from costada.store.purse import Purse

pytestmark = pytest.mark.process

PATIENCE = 600


def toolkit_of(place, purse):
    model = chat_model("openai:stand-in", base_url=place["url"], retry_wait=0)
    given = {"price": "1,2", "preflight": False, "on_missing_usage": "raise"}
    return create_discovery_toolkit(place["toy"], model, purse=purse, out=place["out"], **given)


def work(place, tasks, barrier, said):
    """Send the answer to each task, a tool with its arguments, begun when all processes are."""

    def tell(kind, error, trace):
        if error:
            barrier.abort()  # or the other process would wait
            said.send("".join(traceback.format_exception(error)))

    with ExitStack() as at_end:
        at_end.push(tell)
        do(place, tasks, barrier, said)


def do(place, tasks, barrier, said):
    with Purse(1, path=place["purse"]) as purse, toolkit_of(place, purse) as toolkit:
        tools = {each.name: each for each in toolkit.get_tools()}
        for tool, arguments in tasks:
            barrier.wait(PATIENCE)
            if tool == "reclaim":  # what a toolkit that opens does
                for _ in range(200):
                    toolkit.service.paid.reclaim()
                said.send("")
            else:
                said.send(tools[tool].invoke(arguments))
        barrier.wait(PATIENCE)
        for run in toolkit.service.runs.values():
            run.wait(PATIENCE)


@pytest.fixture
def place(tmp_path):
    """Where two processes work, and what their provider billed."""
    with better_programs() as provider, taking_time(provider):
        yield (
            {
                "url": provider.url,
                "toy": str(toy_folder(tmp_path)),
                "out": str(tmp_path / "runs"),
                "purse": str(tmp_path / "purse.sqlite"),
            },
            provider,
        )


def answers(place, *tasks_of_each):
    """What two processes answer that begin each task together, after both have ended."""
    barrier = PROCESSES.Barrier(len(tasks_of_each))
    with ExitStack() as ending:
        heard = [ending.enter_context(process(place, each, barrier)) for each in tasks_of_each]
        return [
            [answer_in(said) for _ in tasks]
            for tasks, said in zip(tasks_of_each, heard, strict=True)
        ]


def answer_in(said):
    answer = said.recv()
    assert "Traceback" not in answer, answer
    return answer


@contextmanager
def process(place, tasks, barrier):
    said, end = PROCESSES.Pipe(duplex=False)
    begun = PROCESSES.Process(target=work, args=(place, tasks, barrier, end))
    begun.start()
    end.close()
    try:
        yield said
        begun.join(PATIENCE)
        assert begun.exitcode == 0
    finally:
        begun.kill()
        begun.join()


def searches(seeds):
    return [("discover", {"problem": "toy", "budget": 0.004, "seed": seed}) for seed in seeds]


def check_paid(place, provider, number):
    with Purse.existing("purse", path=place["purse"]) as purse:
        accounts = [each for each in purse.accounts()[1:] if each.parent == 1]
        assert all(each.is_closed for each in accounts)
        assert [each.spent for each in accounts] == [Decimal("0.004")] * number
        assert purse.spent == CALL_COST * len(provider.bill) == Decimal("0.004") * number


def test_searches_that_start_at_the_same_moment_have_folders_and_accounts_of_their_own(place):
    place, provider = place
    said = answers(place, searches(range(5)), searches(range(10, 15)))
    runs = [json.loads(each)["run"] for each in chain(*said)]
    assert sorted(runs) == sorted(f"toy-{number}" for number in range(1, 11))
    check_paid(place, provider, 10)


def test_a_toolkit_that_opens_leaves_the_money_of_a_run_that_starts(place):
    place, provider = place
    answers(place, searches(range(5)), [("reclaim", {})] * 5)
    check_paid(place, provider, 5)


def test_a_run_that_two_continue_at_the_same_moment_gets_the_dollars_of_each_answer_once(place):
    place, provider = place
    answers(place, searches([0]))
    more = ("continue_run", {"run": "toy-1", "dollars": 0.004})
    tasks = [more, ("wait_for_run", {"run": "toy-1"})] * 5
    said = answers(place, tasks, tasks)
    continued = 0
    for pair in zip(*(each[::2] for each in said), strict=True):
        # Both if one came so late that the other's run had ended.
        accepted = [each for each in pair if each.startswith("{")]
        assert accepted
        assert all("toy-1" in each for each in pair)
        continued += len(accepted)
    for pair in zip(*(each[1::2] for each in said), strict=True):
        assert {json.loads(each)["phase"] for each in pair} == {"finished"}
    with Purse.existing("purse", path=place["purse"]) as purse:
        assert purse.spent == Decimal("0.004") * (1 + continued)
        assert purse.spent == CALL_COST * len(provider.bill)
