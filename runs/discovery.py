"""A whole run from Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict
from uuid import uuid4

from typing_extensions import Unpack

from costada.values.discovery import Discovery

if TYPE_CHECKING:
    from costada.evaluators.problem import Problem
    from costada.nodes.context import ChatModel
    from costada.runs.config import RunConfig
    from costada.runs.plan import Plan
    from costada.store.purse import Purse

__all__ = ["Discovery", "discover"]


class DiscoverOptions(TypedDict, total=False):
    """Further settings of `discover`, as `RunConfig` explains them."""

    method: str
    base_url: str | None
    max_tokens: int | None
    price_in: float | str | None
    price_out: float | str | None
    guide_price_in: float | str | None
    guide_price_out: float | str | None
    on_missing_usage: Literal["raise", "estimate"]
    lost_calls: Literal["count", "ignore"]
    budget_policy: Literal["crossing", "hard"]
    max_failures: int
    generator: Literal["model", "agent"]
    tool_evaluations: int
    step_cap: float | None
    call_timeout: float
    retry_wait: float
    longest_wait: float
    longest_pause: float
    keep_history: bool
    gateway: bool
    preflight: bool
    allow_invalid_start: bool
    preset: str | None
    reference_cost: float | None
    max_iterations: int
    seed: int
    sandbox: str | None
    timeout: float | None
    memory_mb: int | None


def discover(
    problem: str | Path | Problem,
    model: str | ChatModel,
    *,
    budget: float,
    guide_model: str | ChatModel | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    purse: Purse | None = None,
    trust: bool = False,
    accept_loss: bool = False,
    **options: Unpack[DiscoverOptions],
) -> Discovery:
    """Return what a run within a budget finds.

    Ctrl-C breaks off a running evaluation at once and raises `KeyboardInterrupt`; a run in a
    folder is saved then and can be gone on with.

    Args:
        problem: A benchmark's name, a problem folder, or a `Problem`.
        model: A model id as for `costada run --model`, or any LangChain chat model.
        budget: Dollars to spend (B).
        guide_model: Model asked for tactics; `model` when not given.
        out: Folder for the run's files; without one nothing is written.
        resume: Go on with the run in `out`, which was started with the same settings; `budget` and
            `max_iterations` may be higher than they were.
        purse: A purse that the budget is drawn from, and what was not spent returned to. Where it
            has less left, a purse that may be crossed lends what there is; a hard one needs
            `budget_policy="hard"` and refuses. A run in a folder keeps what it has drawn until it
            ends, and needs the same purse to go on.
        trust: Whether a resumed run may load a problem that lies in `out`. A run folder from
            somebody else is data; such a problem's evaluator would be executed.
        accept_loss: Whether to resume a run whose file has lost steps, as after a power failure.
            Their cost counts as spent; they are repeated and paid for again.
        **options: Further settings, named as the options of `costada run`.

    Raises:
        ValueError: If a setting, the problem or a price is wrong, `out` does not fit `resume`,
            this machine does not offer the sandbox, a provider refuses a request for good or does
            not answer, or the purse has nothing left.
        UnmeteredCall: If an answer came without token counts and estimates are not allowed.
        OSError: If a file of the run cannot be written.
    """
    from costada.runs.config import checked_config
    from costada.runs.folder import RunFolder
    from costada.runs.interruption import interrupting_evaluations
    from costada.runs.plan import plan_run

    names = {"problem": problem, "model": model, "guide_model": guide_model}
    labels = {key: _label(value) for key, value in names.items()}
    config = checked_config({**labels, "budget": budget, **options})
    if out is not None and not resume:
        RunFolder(Path(out)).check_free()
    if out is not None and resume and not trust:
        RunFolder(Path(out)).check_own_problem()
    plan = plan_run(
        config,
        given_problem=None if isinstance(problem, str | Path) else problem,
        given_model=None if isinstance(model, str) else model,
        given_guide_model=None if isinstance(guide_model, str) else guide_model,
        purse=purse,
    )
    with interrupting_evaluations():
        if out is None:
            return _in_memory(plan)
        return _in_folder(plan, config, Path(out), resume=resume, accepts_loss=accept_loss)


def _label(given: object) -> str | None:
    """Return the name of a problem or model, or a note that it was given as an object."""
    from costada.reports.run_view import OBJECT_MARK

    if given is None or isinstance(given, str | Path):
        return None if given is None else str(given)
    return f"{OBJECT_MARK}{getattr(given, 'name', None) or type(given).__name__}"


def _in_memory(plan: Plan) -> Discovery:
    with _lent(plan) as plan:
        found = plan.graph().invoke({"seed": plan.settings.seed})
    return Discovery(**found, folder=None, sandbox=plan.sandbox)


@contextmanager
def _lent(plan: Plan) -> Iterator[Plan]:
    """Yield the plan with an account of its own: a run that fails gives the rest back as well."""
    if plan.purse is None:
        yield plan
        return
    name = f"discover {plan.problem.name} {uuid4().hex}"
    with plan.purse.child(name, plan.budget) as account:
        yield replace(plan, purse=account)


def _in_folder(
    plan: Plan, config: RunConfig, path: Path, *, resume: bool, accepts_loss: bool
) -> Discovery:
    from langgraph.runtime import RunControl

    from costada.reports.progress import Progress
    from costada.runs.folder import RunFolder
    from costada.runs.resume import extend_to
    from costada.runs.runner import carry_out

    folder = RunFolder(path)
    if resume:
        extend_to(folder, config)
    else:
        folder.claim(config)
    return carry_out(plan, folder, Progress(), RunControl(), accepts_loss=accepts_loss)
