"""Three models at prices 1 : 5 : 25 behind one billing server, which sums their bill itself."""

import hashlib
from collections import Counter
from decimal import Decimal
from typing import Any

from agent_answers import agent_answer
from billing_server import BillingServer, Refusal, Reply
from fakes import IDEAS, hashed_answer, is_guide_prompt, toy_problem
from toy_graph import calls_of, client

from costada.controller.constants import Constants
from costada.graph.build import compile_search
from costada.models.menu import MenuModel
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore
from costada.values.usage import Price

DOLLARS = {"small": Decimal("0.02"), "middle": Decimal("0.1"), "large": Decimal("0.5")}
"""Dollars per million input tokens; an output token costs four times as much."""

CAP = 4000


def menu_of(server: BillingServer, *names: str, **options: Any) -> list[MenuModel]:
    given = {"max_tokens": CAP, **options}
    return [
        MenuModel(
            name,
            client(server, name, **given),
            Price(str(DOLLARS[name]), str(4 * DOLLARS[name])),
        )
        for name in names or DOLLARS
    ]


def answer(body: Any) -> Reply:
    """Answer by the prompt and the model's name, at a length of its own."""
    if body.get("tools"):
        return agent_answer(body)
    prompt = body["messages"][-1]["content"]
    text = IDEAS if is_guide_prompt(prompt) else hashed_answer(f"{body['model']} {prompt}")
    draw = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[4:6], "big")
    cap = body.get("max_completion_tokens", CAP)
    return Reply(text, input_tokens=1 + len(prompt), output_tokens=min(cap, 300 + draw % 900))


class Refusing:
    """Refuses the requests to some models, and answers the others."""

    def __init__(self, **statuses: int) -> None:
        self.statuses, self.asked = statuses, Counter[str]()

    def __call__(self, body: Any) -> Reply | Refusal:
        self.asked[body["model"]] += 1
        status = self.statuses.get(body["model"])
        return answer(body) if status is None else Refusal(status)


def billed_by_model(server: BillingServer) -> dict[str, Decimal]:
    """The bill of each model by its prices, worked out without our code."""
    bill = dict.fromkeys(DOLLARS, Decimal(0))
    for each in server.bill:
        tokens = each.input_tokens + 4 * each.output_tokens
        bill[each.model] += DOLLARS[each.model] * tokens / 1_000_000
    return bill


def ledger_by_model(store: RunStore, *, has_guides: bool = True) -> dict[str, Decimal]:
    """What the calls of each model cost, those in doubt at their bound."""
    ledger = dict.fromkeys(DOLLARS, Decimal(0))
    for call in calls_of(store):
        if has_guides or call.role != "guide":
            ledger[call.entry] += call.cost + call.bound
    return ledger


def several(
    menu: Any,
    *,
    store: RunStore | None = None,
    budget: float = 0.2,
    saver: Any = None,
    parallel: int = 1,
    order: Any = "launch",
    iterations: int = 25,
    guide_model: Any = None,
    router: str = "budgeted-thompson",
    problem: Any = None,
    **settings: Any,
) -> Any:
    constants = Constants(max_iterations=iterations)
    settings |= dict(settings.pop("retry_policy", ()))
    return compile_search(
        problem or toy_problem(),
        menu,
        budget=budget,
        settings=Settings(**{"constants": constants, **settings}),
        store=store,
        checkpointer=saver,
        parallel=parallel,
        order=order,
        guide_model=guide_model,
        router=router,
    )
