"""The fast simulation decides what the graph decides when both get the same answers."""

import json

import pytest

from costada.controller.constants import Constants
from costada.controller.methods import METHODS
from costada.evaluators.registry import problem
from costada.experiments.landscape.landscape import Tokens
from costada.experiments.landscape.model import named_approach
from costada.experiments.landscape.simulation import Advice, Evolution, SimulatedRun
from costada.graph.build import create_discovery_graph
from costada.models.chat_models import chat_model
from costada.models.offline.answers import STRATEGIES, strategy_text
from costada.nodes.settings import Settings
from costada.nodes.state import plain
from costada.prompts.evox import parse_strategy
from costada.prompts.replies import parse_program
from costada.prompts.tactics import parse_tactics
from costada.store.run_store import RunStore

CONSTANTS = Constants(max_iterations=32)
BUDGET = 0.5


class ReplayedAnswers:
    """Gives the answers that a graph got, call by call."""

    def __init__(self, calls):
        self.calls = list(calls)
        self.texts = {strategy_text(name).strip(): f"{name}.txt" for name in STRATEGIES}

    def _next(self, *roles):
        call = self.calls.pop(0)
        assert call.role in roles
        return call.answer, Tokens(call.usage.input_tokens, call.usage.output_tokens)

    def attempt(self, request, rng):
        answer, tokens = self._next("generation", "retry")
        return parse_program(answer, request.parent.program.text, "solution").code, tokens

    def advise(self, mode, best, rng):
        answer, tokens = self._next("guide")
        tactics = parse_tactics(answer, 3)
        return Advice(tuple(named_approach(tactic.approach_type) for tactic in tactics), tokens)

    def label(self, rng):
        return self._next("guide")[1]

    def evolve(self, shown, rng):
        spent, name = [self._next("guide")[1]], None
        while name is None and self.calls and self.calls[0].role == "guide":
            answer, tokens = self._next("guide")
            spent.append(tokens)
            name = self.texts.get(str(parse_strategy(answer)).strip())
        return Evolution(name, tuple(spent))


def graph_run(method, seed, store):
    """The controller after each step of a graph, and its trace."""
    graph = create_discovery_graph(
        problem("landscape"),
        chat_model("simulated", seed=seed),
        budget=BUDGET,
        settings=Settings(method=method, constants=CONSTANTS, seed=seed),
        store=store,
    )
    records, rows = [], []
    for kind, part in graph.stream({}, stream_mode=["updates", "custom"]):
        if kind == "custom":
            rows.append(part)
        elif "iterations" in part.get("gate_intervention", {}):
            records.append(part["gate_intervention"]["controller"])
    return records, rows


def as_json(controller):
    return json.dumps(plain(controller))


def with_text_names(record, store):
    """A record that names strategies as the graph's store does."""
    text = as_json(record)
    for name in STRATEGIES:
        text = text.replace(f'"{name}.txt"', f'"{store.put_text(strategy_text(name))}"')
    return text


@pytest.mark.parametrize("method", METHODS)
def test_equal_answers_lead_to_equal_records_after_every_step(method):
    with RunStore() as store:
        records, rows = graph_run(method, 3, store)
        (run_id,) = store.run_ids()
        answers = ReplayedAnswers(store.call_log.calls(run_id))
        run = SimulatedRun(method, 3, BUDGET, CONSTANTS, answers)
        replayed = [with_text_names(record, store) for record in run.steps()]
        outcome = run.outcome()
    assert len(rows) > 15
    assert answers.calls == []
    assert replayed == list(map(json.dumps, records))
    assert [(point.spent, point.best_score) for point in outcome.points] == [
        (row["spent"], row["best_score"]) for row in rows
    ]
