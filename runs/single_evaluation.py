"""Evaluations outside of runs, whose models are asked for a bill that is shown."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costada.evaluators.problem import Problem
    from costada.nodes.state import SearchState
    from costada.runs.config import RunConfig
    from costada.store.run_store import RunStore
    from costada.values.candidate import Program
    from costada.values.evaluation import Evaluation

RUN_ID = "evaluation"


@dataclass(slots=True)
class MeteredEvaluations:
    """Evaluates programs of a problem, and adds up what the models that it asks cost.

    Attributes:
        problem: The problem.
        config: How its models are asked.
    """

    problem: Problem
    config: RunConfig
    _store: RunStore | None = None
    _number: int = 0

    def evaluate(self, program: Program) -> Evaluation:
        """Evaluate a program, on all examples of a data set, those of the validation included.

        Raises:
            ValueError: A model cannot be asked, has no price, or shows that it never answers.
            InterruptedError: The evaluation was cancelled.
            Exception: What `Problem.evaluate_program` raises.
        """
        incumbent = -inf if self.problem.validation else None
        if not self.asks_models:
            return self.problem.evaluate_program(program, incumbent=incumbent)
        # Not imported at the start: most problems ask no models, and their evaluation is fast.
        from costada.graph.run_context import priced_models_by_role
        from costada.nodes.calls.allowance import allowance_of_evaluation
        from costada.nodes.calls.paid_evaluations import measure
        from costada.nodes.context import RunContext
        from costada.nodes.settings import Settings
        from costada.nodes.state import Account, Flight, Run, Step
        from costada.runs.configured_models import models_of_problem
        from costada.store.run_store import RunStore
        from costada.values.numbering import START

        self._store = self._store or RunStore()
        settings = Settings()
        given = models_of_problem(self.problem, self.config)
        granted = priced_models_by_role(self.problem, given, settings)
        context = RunContext(
            problem=self.problem,
            menu=(),
            budget=inf,
            settings=settings,
            store=self._store,
            granted=granted,
        )
        state: SearchState = {
            "run": Run(RUN_ID, 0, RUN_ID),
            "step": Step(),
            "flight": Flight(),
            "account": Account(),
            "iterations": START,
        }
        self._number += 1
        allowance = allowance_of_evaluation(state, context)
        return measure(str(self._number), program, state, context, allowance, incumbent)

    @property
    def asks_models(self) -> bool:
        """Whether an evaluation may cost money."""
        return self.problem.asks_models

    @property
    def bill(self) -> str:
        """What the models have cost so far, by name; empty for a problem that asks none."""
        if self._store is None:
            return ""
        costs: dict[str, Decimal] = {}
        for call in self._store.call_log.calls(RUN_ID, with_texts=False):
            costs[call.model] = costs.get(call.model, Decimal(0)) + call.cost + call.bound
        if not costs:
            return "none was asked" if self.asks_models else ""
        parts = ", ".join(f"{model} ${cost:.6f}" for model, cost in costs.items())
        return f"${sum(costs.values()):.6f} ({parts})" if len(costs) > 1 else parts
