"""`discover`: a whole run from Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from typing_extensions import Unpack

from costada.values.search_result import Discovery

if TYPE_CHECKING:
    from costada.evaluators.problem import Problem
    from costada.nodes.context import ChatModel
    from costada.runs.keywords import DiscoverKeywords
    from costada.runs.models_file import GivenModel
    from costada.store.purse import Purse

__all__ = ["Discovery", "discover"]


def discover(
    problem: str | Path | Problem | None = None,
    model: str | ChatModel | None = None,
    *,
    budget: float,
    evaluate: Callable[[str], object] | None = None,
    start: str | Path | None = None,
    task: str = "",
    models: str | Sequence[GivenModel] = (),
    models_file: str | Path | None = None,
    guide_model: str | ChatModel | None = None,
    out: str | Path | None = None,
    store: str | None = None,
    resume: bool = False,
    purse: Purse | None = None,
    trust: bool = False,
    accept_loss: bool = False,
    **settings: Unpack[DiscoverKeywords],
) -> Discovery:
    """Run a search within a budget and return the best program.

    Ctrl-C cancels the running evaluation and raises `KeyboardInterrupt`; a run in a folder is saved
    and can be resumed.

    Args:
        problem: A benchmark's name, a problem folder, or a `Problem`; none with `evaluate`.
        model: A model id as for `costada run --model`, or any LangChain chat model.
        budget: Dollars to spend (B).
        evaluate: In place of a problem, a function that judges a text which nothing runs: a prompt,
            a configuration, a query. It is called in this process, and returns a number, higher is
            better, a dict with `combined_score`, or an `Evaluation`. It rejects a text by
            `ValueError` and gives feedback by `costada.log`.
        start: The text to begin with, or the `Path` of a file that holds it, with `evaluate`; None
            if the first attempts write it from the task.
        task: What the text is for, in words for the model; with `evaluate`.
        models: Models to choose from before each attempt, in place of `model`: texts as for
            `costada run --models`, chat models, or `MenuModel(name, model, price)` for a chat
            model with a name or a price of its own.
        models_file: TOML file that explains texts in `models`; by default `models.toml` in the
            working folder, if there is one.
        guide_model: The model that is asked for tactics, also by its name in `models`; by default
            `model`, or the first of `models`.
        out: Folder for the run's files; without one nothing is written.
        store: Address of a Postgres database that keeps the run in place of a file in `out`, which
            names it.
        resume: Resume the run in `out`, which was started with the same settings; `budget` and
            `max_iterations` may be higher than before.
        purse: Pays for the run; unspent money is returned to it. If less than the budget is left, a
            purse with the policy "crossing" provides what it has; a hard one needs
            `budget_policy="hard"` and refuses. A run in a folder keeps its account until it ends,
            and needs the same purse when resumed.
        trust: Whether a resumed run may load a problem that lies in `out`. A run folder from
            somebody else is data; such a problem's evaluator would be executed.
        accept_loss: Whether to resume a run that has lost steps, as after a power failure, or whose
            database has lost requests. Their cost counts as spent; they are repeated and paid for
            again.
        **settings: Further settings, see [Settings](settings.md).

    Raises:
        ValueError: If a setting, the problem or a price is wrong, `out` does not fit `resume`,
            this machine does not offer the sandbox, a provider rejects a request permanently or
            does not respond, or the purse is empty.
        UnmeteredCall: If a response has no token counts and estimates are not allowed.
        OSError: If a file of the run cannot be written.
    """
    from langgraph.runtime import RunControl

    from costada.reports.progress import LoggedNotices
    from costada.runs.interruption import interrupting_evaluations
    from costada.runs.plan import plan_run
    from costada.runs.resume import check_lost_steps, extend_to
    from costada.runs.runner import execute_run
    from costada.runs.search_request import parse_request
    from costada.runs.stored_run import run_at
    from costada.store.address import check_database
    from costada.store.outage import Patience, waiting_for_database

    searched = _problem_of(problem, evaluate, start, task)
    given = parse_request(
        searched, model, models, models_file, guide_model, {"budget": budget, **settings}
    )
    if store is not None:
        check_database(store)
        if out is None:
            raise ValueError("store: got an address without out, expected both or none")
    folder = None
    if out is not None:
        folder = run_at(f"{store}#{Path(out).name}", Path(out)) if store else run_at(Path(out))
    if (log := given.config.log) and folder is None:
        raise ValueError(f"log: got {', '.join(log)} without out, expected both or none")
    # Refused before the plan, which evaluates the initial program: that can take minutes.
    patience = Patience(given.config.longest_pause)
    if folder and not resume:
        folder.check_free()
    if folder and resume and not trust:
        with waiting_for_database(patience):
            folder.check_own_problem()
    plan = plan_run(given, purse=purse)
    with interrupting_evaluations(), waiting_for_database(patience) if resume else nullcontext():
        if folder:
            if resume:
                extend_to(folder, given.config)
                check_lost_steps(folder, given.config, is_accepted=accept_loss)
            else:
                folder.claim(given.config, purse.root if purse else "")
            return execute_run(
                plan, folder, LoggedNotices(), RunControl(), accepts_loss=accept_loss
            )
        # A run without files gives its money back even if it fails.
        name = f"discover {plan.problem.name} {uuid4().hex}"
        with purse.child(name, plan.budget) if purse else nullcontext() as account:
            graph = replace(plan, purse=account).graph()
            found = graph.invoke({"seed": plan.settings.seed})
        return Discovery(**found, folder=None, sandbox=plan.sandbox)


def _problem_of(
    problem: str | Path | Problem | None,
    evaluate: Callable[[str], object] | None,
    start: str | Path | None,
    task: str,
) -> str | Path | Problem:
    """What is searched: the problem given, or that of a function."""
    if evaluate is None:
        if start is not None or task:
            raise ValueError("start and task: got them without evaluate, expected them with it")
        if problem is None:
            raise ValueError("problem: got None, expected a name, a folder or a Problem")
        return problem
    if problem is not None:
        raise ValueError("evaluate: got a function and a problem, expected only one of them")
    from costada.evaluators.plain_function import function_problem

    return function_problem(evaluate, start, task)
