"""What the tools of a generating model do, within one attempt."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Any

from costada.controller.method import ParentRule
from costada.evaluators.repository import RepositoryEvaluator
from costada.evaluators.repository_tools import RepositoryTools
from costada.nodes.calls.compute import evaluate_for_money
from costada.nodes.context import RunContext, archives_of, candidate_of, population_of, prompt_view
from costada.nodes.evaluate import evaluate_program
from costada.nodes.state import SearchState
from costada.prompts.changes import Change, read_change
from costada.prompts.tools import (
    EVALUATE,
    GREP,
    OUTLINE,
    READ,
    READ_FILE,
    RUN_TESTS,
    SEARCH,
    SUBMIT,
    FoundProgram,
    call_error,
    listing,
    program_text,
    tools_for,
    tools_section,
    trial_text,
)
from costada.prompts.whole_texts import Rejection
from costada.values.candidate import Candidate, Program
from costada.values.evaluation import Evaluation, failed


@dataclass(slots=True)
class ToolSession:
    """The programs that a model can see and try within one attempt, and what it submits.

    An attempt that is executed again gets the same answers: nothing here depends on the time but
    what tools find in a repository, and those results are stored.

    Attributes:
        state: Of the run.
        context: Of the run.
        visible: The candidates that the model may look at, besides its own.
        trials: What it evaluated, in order.
        submitted: What it submitted, if anything.
        refusal: Why the last changes yielded no program.
        drafts: Programs that were tested but not evaluated, by their ids.
        known: Results of tools in a repository that are stored for the answer at hand, in order.
        found: Those that the answer at hand has got so far.
    """

    state: SearchState
    context: RunContext
    visible: Sequence[Candidate]
    trials: list[Candidate] = field(default_factory=list)
    submitted: Change | None = None
    refusal: str = ""
    drafts: dict[str, Change] = field(default_factory=dict)
    known: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)

    @property
    def repository(self) -> RepositoryTools | None:
        """The tools of the repository that the program belongs to; None if it belongs to none."""
        evaluator = self.context.problem.evaluate
        return RepositoryTools(evaluator) if isinstance(evaluator, RepositoryEvaluator) else None

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        """The tools as a model is told of them."""
        return tools_for(self.context.problem.form, **self._kinds)

    def section(self, answers: int) -> str:
        """The part of the prompt about them."""
        return tools_section(answers, self.evaluations_left, **self._kinds)

    @property
    def _kinds(self) -> dict[str, bool]:
        repository = self.repository
        return {
            "in_repository": repository is not None,
            "has_tests": repository is not None and repository.has_tests,
        }

    @property
    def evaluations_left(self) -> int:
        """How many programs may still be tried."""
        return self.context.settings.tool_evaluations - len(self.trials)

    def use(self, name: str, arguments: Mapping[str, object]) -> str:
        """The tool's answer to the model; wrong arguments get an answer too."""
        wrong = call_error(name, arguments, self.tools)
        if wrong is not None:
            return wrong
        texts = {field: str(value) for field, value in arguments.items()}
        tools: dict[str, Callable[[Mapping[str, str]], str]] = {
            EVALUATE: self._evaluate,
            READ: self._read,
            SEARCH: self._search,
            SUBMIT: self._submit,
            READ_FILE: partial(self._look, READ_FILE, ("path", "lines")),
            GREP: partial(self._look, GREP, ("pattern", "glob")),
            OUTLINE: partial(self._look, OUTLINE, ("path",)),
            RUN_TESTS: self._run_tests,
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
        if texts["candidate"] in self.drafts:
            self.submitted = self.drafts[texts["candidate"]]
            return "Submitted."
        for trial in self.trials:
            if trial.id == texts["candidate"]:
                self.submitted = Change(trial.program, trial.changes)
                return "Submitted."
        return f"You evaluated no candidate {texts['candidate']!r} in this attempt."

    def _proposal(self, changes: str, base: str | None) -> Change | str:
        """The program that changes make of a base, or why there is none."""
        changed = self._program(base)
        if changed is None:
            return _unknown(str(base))
        read = read_change(changes, changed, self.context.problem.form)
        if isinstance(read, Rejection):
            self.refusal = read.reason
            return read.reason
        return read

    def _look(self, tool: str, names: Sequence[str], texts: Mapping[str, str]) -> str:
        """What a tool shows of the files of a repository."""
        program = self._program(texts.get("base"))
        if program is None:
            return _unknown(texts["base"])
        arguments = [texts[name] for name in names if name in texts]
        return self._remembered(lambda tools: tools.look(program, tool, arguments))

    def _run_tests(self, texts: Mapping[str, str]) -> str:
        """How tests end on a program that changes make, or on one as it is."""
        program, name = self._program(texts.get("base")), ""
        if program is None:
            return _unknown(texts["base"])
        if "changes" in texts:
            proposal = self._proposal(texts["changes"], texts.get("base"))
            if isinstance(proposal, str):
                return proposal
            name, program = f"draft.{len(self.drafts) + 1}", proposal.program
            self.drafts[name] = proposal
        tests = texts.get("tests", "").split()
        if options := [word for word in tests if word.startswith("-")]:
            return f"tests has the option {options[0]!r}; expected names of tests."
        tested = program
        text = self._remembered(lambda tools: tools.run_tests(tested, tests))
        return f"Draft {name}\n\n{text}" if name else text

    def _remembered(self, ask: Callable[[RepositoryTools], str]) -> str:
        """What a tool answered to the call at this place before, or answers now.

        Its time is charged as that of an evaluation, and it waits for others as one does.

        Raises:
            RequestNotSent: A hard budget cannot pay for the time.
        """
        place, tools, problem = len(self.found), self.repository, self.context.problem
        if tools is None:
            return "There is no repository."
        if place < len(self.known):
            self.found.append(self.known[place])
            return self.known[place]

        def evaluate(on_permit: Callable[[], None] = lambda: None) -> Evaluation:
            with problem.turns.permit():
                on_permit()
                began = monotonic()
                self.found.append(ask(tools))
                return replace(failed("not scored"), worker_seconds=monotonic() - began)

        evaluate_for_money(evaluate, self.state, self.context)
        return self.found[place]

    def _program(self, name: str | None) -> Program | None:
        """The program of an id that the model may see, drafts included; without, the current."""
        if name in self.drafts:
            return self.drafts[name].program
        found = self._candidates().get(name or self.state["step"].attempt.parent)
        return found.program if found else None

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
