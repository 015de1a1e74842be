"""What the tools of a generating model do, within one attempt."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from costada.controller.archive import Candidate
from costada.controller.method import ParentRule
from costada.evaluators.problem import Problem
from costada.nodes.candidates import load_archives, load_candidate, shown, to_candidate
from costada.nodes.context import RunContext
from costada.nodes.evaluate import Proposed, judged
from costada.nodes.evox.strategies import population
from costada.nodes.state import SearchState
from costada.prompts.replies import Proposal, Rejection, parse_program
from costada.prompts.tools import (
    EVALUATE,
    READ,
    SEARCH,
    SUBMIT,
    FoundProgram,
    complaint,
    listing,
    program_text,
    trial_text,
)
from costada.store.rows import CandidateRow


@dataclass(slots=True)
class Workbench:
    """The programs that a model can see and try within one attempt, and what it hands in.

    Nothing here depends on when it is asked: an attempt that is executed again comes by the same
    answers.

    Attributes:
        state: Of the step under way.
        context: Of the run.
        trials: What was evaluated, in order.
        submitted: What was handed in, if anything was.
        refusal: Why the last changes yielded no program.
    """

    state: SearchState
    context: RunContext
    trials: list[CandidateRow] = field(default_factory=list)
    submitted: Proposal | None = None
    refusal: str = ""
    _seen: dict[str, FoundProgram] = field(default_factory=dict, init=False)

    @property
    def evaluations_left(self) -> int:
        """How many programs may still be tried."""
        return self.context.settings.tool_evaluations - len(self.trials)

    def use(self, name: str, arguments: Mapping[str, object]) -> str:
        """Return what a tool answers to the model, be it what is wrong with its arguments."""
        wrong = complaint(name, arguments)
        if wrong is not None:
            return wrong
        texts = {field: str(value) for field, value in arguments.items()}
        tools = {
            EVALUATE: self._evaluate,
            READ: self._read,
            SEARCH: self._search,
            SUBMIT: self._submit,
        }
        return tools[name](texts)

    def hand_in(self, changes: str, base: str | None = None) -> str:
        """Take changes as the result, and return what became of them."""
        proposal = self._proposal(changes, base)
        if isinstance(proposal, Proposal):
            self.submitted = proposal
            return "Submitted."
        return proposal

    def result(self) -> Proposal | None:
        """Return what was handed in, or else the best of what was tried, `None` if nothing was."""
        if self.submitted is not None or not self.trials:
            return self.submitted
        return _proposed(max(self.trials, key=lambda each: (each.is_valid, each.score)))

    def _evaluate(self, texts: Mapping[str, str]) -> str:
        if self.evaluations_left < 1:
            return "No evaluation is left: submit a result."
        proposal = self._proposal(texts["changes"], texts.get("base"))
        if isinstance(proposal, str):
            return proposal
        step, number = self.state["step"], len(self.trials) + 1
        name = f"{self.state['iteration']}.{step['attempt']}.{number}"
        tried = Proposed(name, proposal.code, proposal.changes, is_trial=True)
        row = judged(tried, self.state, self.context)
        self.trials.append(row)
        return trial_text(_found(to_candidate(row), self.context.problem))

    def _read(self, texts: Mapping[str, str]) -> str:
        found = self._known().get(texts["id"])
        return _unknown(texts["id"]) if found is None else program_text(found)

    def _search(self, texts: Mapping[str, str]) -> str:
        words = texts.get("words", "").lower().split()
        listed: dict[str, FoundProgram] = {}
        for found in self._known().values():
            text = f"{found.program.code}\n{found.changes}".lower()
            if all(word in text for word in words):
                listed.setdefault(found.program.code, found)
        return listing(tuple(sorted(listed.values(), key=lambda each: -each.program.score)))

    def _submit(self, texts: Mapping[str, str]) -> str:
        if "candidate" not in texts:
            return self.hand_in(texts["changes"], texts.get("base"))
        for trial in self.trials:
            if trial.id == texts["candidate"]:
                self.submitted = _proposed(trial)
                return "Submitted."
        return f"You evaluated no candidate {texts['candidate']!r} in this attempt."

    def _proposal(self, changes: str, base: str | None) -> Proposal | str:
        """Return the program that changes make of a base, or why there is none."""
        changed = self._known().get(base or self.state["step"]["parent"])
        if changed is None:
            return _unknown(str(base))
        entry_point = self.context.problem.entry_point
        read = parse_program(changes, changed.program.code, entry_point)
        if isinstance(read, Rejection):
            self.refusal = read.reason
            return read.reason
        return read

    def _known(self) -> dict[str, FoundProgram]:
        """Return the programs that the model may see: those of the archives, and its own."""
        if not self._seen:
            searched = _searched(self.state, self.context)
            self._seen = {each.id: _found(each, self.context.problem) for each in searched}
        tried = map(to_candidate, self.trials)
        return self._seen | {each.id: _found(each, self.context.problem) for each in tried}


def _searched(state: SearchState, context: RunContext) -> list[Candidate]:
    """Return what an attempt may start from, by the method's rule for parents."""
    controller, step = state["controller"], state["step"]
    parent = load_candidate(step["parent"], state, context)
    if controller.parents is ParentRule.SEED:
        return [parent]
    shown_beside = (load_candidate(each, state, context) for each in step["inspirations"])
    known = [parent, load_candidate(state["best"], state, context), *shown_beside]
    if controller.parents is ParentRule.POPULATION:
        return [*known, *map(to_candidate, population(state, context))]
    archives = load_archives(state, context)
    return [*known, *(member for archive in archives for member in archive.members)]


def _found(candidate: Candidate, problem: Problem) -> FoundProgram:
    return FoundProgram(candidate.id, candidate.changes, shown(candidate, problem))


def _proposed(trial: CandidateRow) -> Proposal:
    return Proposal(trial.code, trial.changes)


def _unknown(name: str) -> str:
    return f"There is no program {name!r}; search_archive lists those there are."
