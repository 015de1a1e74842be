"""The tools that clients of a search service get, over MCP and in LangChain alike."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from costada.agents.followed_runs import best_program_of, result_of, states_of
from costada.agents.run_answers import BestProgram, RunList, RunResult, RunStatus
from costada.agents.search_service import SearchService
from costada.values.python_syntax import docstring

MAX_WAIT = 45.0
"""Seconds that one request may take; MCP clients give up after 60."""

Run = Annotated[str, Field(description="Name of the run, as discover returned it.")]
ProblemName = Annotated[str, Field(description="One of the problems that are offered.")]
Budget = Annotated[float, Field(description="Dollars of the run; lowered to what the purse has.")]
Seed = Annotated[int, Field(description="Random seed of the run.")]
Dollars = Annotated[
    float, Field(description="Dollars beyond the budget that the run has; 0 for none.")
]
Target = Annotated[
    float | None,
    Field(description="Objective that is good enough: the run ends once its best reaches it."),
]
OwnProgram = Annotated[
    str | dict[str, str],
    Field(description="Its complete text, or that of each file by path if programs have several."),
]
WaitSeconds = Annotated[
    float, Field(ge=0, le=MAX_WAIT, description="Return when the run ends, or after this time.")
]


@dataclass(frozen=True, slots=True)
class SearchTools:
    """One method for each tool; its docstring, arguments and answer are what a client sees.

    All raise `ValueError` for what a client got wrong, and `OSError` where a run cannot be read.

    Attributes:
        service: The searches.
        report: Called with the state of a run that a client waits for after each of its steps.
    """

    service: SearchService
    report: Callable[[RunStatus], None] | None = None

    def discover(
        self, problem: ProblemName, budget: Budget, seed: Seed = 0, target: Target = None
    ) -> RunStatus:
        """Start a search for a better program and return at once; it runs in the background.

        A run of the same problem and seed that is running is returned instead.
        """
        return self.service.start(problem, budget, seed, target).status()

    def run_status(self, run: Run) -> RunStatus:
        """Return the state of a run: phase, iterations, dollars spent, best score, any error."""
        return self.service.run(run).status()

    def wait_for_run(self, run: Run, seconds: WaitSeconds = MAX_WAIT) -> RunStatus:
        """Wait until a run has ended or the time is over, and return its state."""
        reported = 0
        for state in states_of(self.service.run(run), seconds):
            if self.report and state["iterations"] > reported:
                reported = state["iterations"]
                self.report(state)
        return state

    def stop_run(self, run: Run) -> RunStatus:
        """Stop a run after its calls in flight, and keep what it has; it can be continued."""
        return self.service.stop(run).status()

    def submit_program(self, run: Run, program: OwnProgram) -> RunStatus:
        """Let the next step of a run evaluate a program of yours, without a model call.

        If it is the best so far, the search builds on it. A run that is not running takes it once
        it is continued.
        """
        return self.service.submit(run, program, MAX_WAIT).status()

    def continue_run(self, run: Run, dollars: Dollars, target: Target = None) -> RunStatus:
        """Continue a run that has ended, or was stopped or interrupted; returns at once."""
        return self.service.extend(run, dollars, target).status()

    def list_runs(self) -> RunList:
        """Return the state of each run, the oldest first, and the dollars that are left."""
        return self.service.listed()

    def best_program(self, run: Run) -> BestProgram:
        """Return the best program of a run so far, with its score and the state of the run."""
        return best_program_of(self.service.run(run))

    def run_result(self, run: Run) -> RunResult:
        """Return the result of a run that is not running: best program, metrics, why it ended."""
        return result_of(self.service.run(run))

    @property
    def starting(self) -> list[Callable[..., object]]:
        """The tools that spend dollars."""
        return [self.discover, self.continue_run]

    @property
    def steering(self) -> list[Callable[..., object]]:
        """The tools that change a run and spend no dollars of the purse by themselves."""
        return [self.submit_program, self.stop_run]

    @property
    def reading(self) -> list[Callable[..., object]]:
        """The tools that change nothing."""
        return [
            self.run_status,
            self.wait_for_run,
            self.list_runs,
            self.best_program,
            self.run_result,
        ]

    def description(self, tool: Callable[..., object]) -> str:
        """What a client is told of a tool; of `discover` also what it can name and spend."""
        text = docstring(tool)
        if tool == self.discover:
            text += f"\n\nProblems: {', '.join(self.service.problems)}. {self.limit}"
        return text

    @property
    def limit(self) -> str:
        """What all runs can spend together, under their budget policy."""
        budget = f"${self.service.purse.budget:f}"
        if self.service.settings.budget_policy == "hard":
            return f"All runs together spend at most {budget}."
        return (
            f"All runs together share {budget}. Steps that are running when a run reaches its"
            " budget complete and are charged, so a run, and all runs together, can spend more."
        )
