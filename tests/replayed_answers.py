"""Answers of a simulated run that were given to a graph before, and the run of that graph."""

from costada.evaluators.registry import problem
from costada.graph.build import compile_search
from costada.models.chat_models import chat_model
from costada.nodes.settings import Settings
from costada.plugins.evox.prompts import parse_strategy
from costada.plugins.lab.landscape.landscape_answers import Advice, Evolution
from costada.plugins.lab.landscape.landscape_problem import landscape
from costada.plugins.lab.landscape.simulated_model import named_approach
from costada.plugins.offline.answers import STRATEGIES, strategy_text
from costada.prompts.changes import read_change
from costada.prompts.tactics import parse_tactics
from costada.values.program_form import ProgramForm


class ReplayedAnswers:
    """Gives the answers that a graph got, call by call."""

    problem = landscape()

    def __init__(self, calls):
        self.calls = list(calls)
        self.texts = {strategy_text(name).strip(): f"{name}.txt" for name in STRATEGIES}

    def _next(self, *roles):
        call = self.calls.pop(0)
        assert call.role in roles
        return call.answer, call.usage

    def attempt(self, request, rng):
        answer, tokens = self._next("generation", "retry")
        change = read_change(answer, request.parent.program, ProgramForm(entry_point="solution"))
        return change.program.text, tokens

    def with_score(self, code, score, rng):
        raise AssertionError("expected models that keep every improvement")

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


def graph_run(method, seed, budget, constants, store):
    """The controller after each step of a graph on the landscape, and its trace."""
    graph = compile_search(
        problem("landscape"),
        chat_model("simulated", seed=seed),
        budget=budget,
        settings=Settings(method=method, constants=constants, seed=seed),
        store=store,
    )
    records, rows = [], []
    for kind, part in graph.stream({}, stream_mode=["updates", "custom"]):
        if kind == "custom":
            rows.append(part)
        elif "iterations" in part.get("gate_intervention", {}):
            name, fields = part["gate_intervention"]["controller"]
            # the simulation has no texts behind the labels of EvoX
            no_labels = {"labels": ["", ""]} if "labels" in fields else {}
            records.append([name, {**fields, **no_labels}])
    return records, rows
