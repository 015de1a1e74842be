"""What the tools of a generating model do, within one attempt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from costada.controller.method import ParentRule
from costada.nodes.context import RunContext, archives_of, candidate_of, population_of, prompt_view
from costada.nodes.evaluate import evaluate_program
from costada.nodes.state import SearchState
from costada.prompts.changes import Change, read_change
from costada.prompts.tools import (
    EVALUATE,
    READ,
    SEARCH,
    SUBMIT,
    FoundProgram,
    call_error,
    listing,
    program_text,
    trial_text,
)
from costada.prompts.whole_texts import Rejection
from costada.values.candidate import Candidate, Program


@dataclass(slots=True)
class ToolSession:
    """The programs that a model can see and try within one attempt, and what it submits.

    Nothing here depends on the time: an attempt that is executed again gets the same answers.

    Attributes:
        state: Of the run.
        context: Of the run.
        visible: The candidates that the model may look at, besides its own.
        trials: What it evaluated, in order.
        submitted: What it submitted, if anything.
        refusal: Why the last changes yielded no program.
    """

    state: SearchState
    context: RunContext
    visible: Sequence[Candidate]
    trials: list[Candidate] = field(default_factory=list)
    submitted: Change | None = None
    refusal: str = ""

    @property
    def evaluations_left(self) -> int:
        """How many programs may still be tried."""
        return self.context.settings.tool_evaluations - len(self.trials)

    def use(self, name: str, arguments: Mapping[str, object]) -> str:
        """The tool's answer to the model; wrong arguments get an answer too."""
        wrong = call_error(name, arguments)
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

    def submit(self, changes: str, base: str | None = None) -> str:
        """Take changes as the result; answers whether they were accepted."""
        proposal = self._proposal(changes, base)
        if isinstance(proposal, Change):
            self.submitted = proposal
            return "Submitted."
        return proposal

    def result(self) -> Change | None:
        """The submitted program, or else the best one tried; `None` if there is none."""
        if self.submitted is not None or not self.trials:
            return self.submitted
        best = max(self.trials, key=lambda trial: (trial.is_valid, trial.score))
        return Change(best.program, best.changes)

    def _evaluate(self, texts: Mapping[str, str]) -> str:
        if self.evaluations_left < 1:
            return "No evaluation is left: submit a result."
        proposal = self._proposal(texts["changes"], texts.get("base"))
        if isinstance(proposal, str):
            return proposal
        # Named by its place: executed again, the same call finds the same trial in the store.
        number = len(self.trials) + 1
        step = self.state["step"]
        name = f"{step.ticket}.{step.attempt.number}.{number}"
        trial = evaluate_program(
            name, proposal.program, proposal.changes, self.state, self.context, is_trial=True
        )
        self.trials.append(trial)
        return trial_text(self._found(trial))

    def _read(self, texts: Mapping[str, str]) -> str:
        found = self._candidates().get(texts["id"])
        return (
            _unknown(texts["id"])
            if found is None
            else program_text(self._found(found), self.context.problem.form)
        )

    def _search(self, texts: Mapping[str, str]) -> str:
        words = texts.get("words", "").lower().split()
        listed: dict[Program, Candidate] = {}
        for found in self._candidates().values():
            text = f"{found.program.text}\n{found.changes}".lower()
            if all(word in text for word in words):
                listed.setdefault(found.program, found)
        best_first = sorted(listed.values(), key=lambda each: -each.score)
        return listing(tuple(map(self._found, best_first)))

    def _submit(self, texts: Mapping[str, str]) -> str:
        if "candidate" not in texts:
            return self.submit(texts["changes"], texts.get("base"))
        for trial in self.trials:
            if trial.id == texts["candidate"]:
                self.submitted = Change(trial.program, trial.changes)
                return "Submitted."
        return f"You evaluated no candidate {texts['candidate']!r} in this attempt."

    def _proposal(self, changes: str, base: str | None) -> Change | str:
        """The program that changes make of a base, or why there is none."""
        changed = self._candidates().get(base or self.state["step"].attempt.parent)
        if changed is None:
            return _unknown(str(base))
        read = read_change(changes, changed.program, self.context.problem.form)
        if isinstance(read, Rejection):
            self.refusal = read.reason
            return read.reason
        return read

    def _candidates(self) -> dict[str, Candidate]:
        """The candidates that the model may see by id, its own trials included."""
        return {each.id: each for each in (*self.visible, *self.trials)}

    def _found(self, candidate: Candidate) -> FoundProgram:
        return FoundProgram(
            candidate.id, candidate.changes, prompt_view(candidate, self.context.problem)
        )


def archived_candidates(state: SearchState, context: RunContext) -> list[Candidate]:
    """What an attempt may start from: its context set, the incumbent, and all possible parents."""
    parents = state["controller"].parents
    if parents is ParentRule.SEED:
        return [candidate_of(state["step"].attempt.parent, state, context)]
    if parents is ParentRule.POPULATION:
        return [*context_candidates(state, context), *population_of(state, context)]
    members = (member for archive in archives_of(state, context) for member in archive.members)
    return [*context_candidates(state, context), *members]


def context_candidates(state: SearchState, context: RunContext) -> list[Candidate]:
    """The attempt's parent, the incumbent, and the inspirations."""
    attempt = state["step"].attempt
    ids = [attempt.parent, state["best"], *attempt.inspirations]
    return [candidate_of(each, state, context) for each in ids]


def _unknown(name: str) -> str:
    return f"There is no program {name!r}; search_archive lists the programs."
