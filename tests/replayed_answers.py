"""Answers of a simulated run that were given to a graph before."""

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
