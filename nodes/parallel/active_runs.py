"""The runs that one execution of a graph carries out, and what they leave when it is aborted."""

from langchain_core.runnables import RunnableConfig

from costada.nodes.calls.purse import close_account
from costada.nodes.context import RunContext
from costada.nodes.parallel.pool import pool_of

ACTIVE_RUNS = "__costada_runs"
"""Key of a configuration: the contexts of the runs that it executes, by run id."""


def register_run(run_id: str, config: RunnableConfig, context: RunContext) -> None:
    """Note in the configuration that it executes a run, for `abort_runs`."""
    runs = config.get("configurable", {}).get(ACTIVE_RUNS)
    if run_id and runs is not None:
        runs[run_id] = context


def abort_runs(runs: dict[str, RunContext]) -> None:
    """Cancel the evaluations of aborted runs, and return to their purses what they did not spend.

    Calls in flight end by themselves, are stored and reported. A run that is resumed evaluates
    again, and draws its budget again.
    """
    for run_id, context in runs.items():
        pool_of(context.store, run_id).cancel()
        close_account(run_id, context)
