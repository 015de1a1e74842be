"""A new run from the middle of another one: time travel without a trace in the original."""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from uuid import uuid4

from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple

from costada.nodes.state import SearchState
from costada.reports.trace import stored_rows
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder, StepLog
from costada.runs.runner import THREAD
from costada.store.checkpoints import RunSaver
from costada.store.copying import Cut, copy_file, cut_back
from costada.store.files import make_folder, replace_text
from costada.store.run_store import RunStore


@dataclass(frozen=True, slots=True)
class Fork:
    """A run that was forked and can be gone on with.

    Attributes:
        folder: Where it lives.
        iterations: Iterations it took over.
        spent: Dollars of their calls, which are in its ledger.
    """

    folder: RunFolder
    iterations: int
    spent: float


def fork_run(
    source: RunFolder,
    iteration: int,
    target: RunFolder,
    *,
    budget: float | None = None,
    seed: int | None = None,
    trust: bool = False,
) -> Fork:
    """Return a new run that is where another one was at the end of an iteration.

    It has the programs, the trace and the ledger up to there, its own id, and the settings of the
    original where none are given, and says where it comes from. The original is only read, and may
    be at work meanwhile.

    Args:
        source: The original.
        iteration: The last iteration that is taken over.
        target: A folder that does not exist yet, or is empty.
        budget: Dollars that the new run may spend, the calls it takes over included (B).
        seed: Where its randomness starts from there on.
        trust: Whether the fork may load a problem that came with the original, and keep a weak
            sandbox that it asks for; see `RunFolder.check_trusted`.

    Raises:
        ValueError: If there is no run, it is not trusted, there is no checkpoint of that iteration,
            the budget is spent already, something is in the target, or the original's run file is
            damaged.
        pydantic.ValidationError: If budget or seed can be none at all.
        OSError: If a file cannot be read or written.
    """
    config = _changed(source.load(), budget, seed)
    if not trust:
        source.check_trusted()
    _check_begun(source)
    _check_empty(target.path)
    with _built_beside(target.path) as draft:
        copy_file(source.database, draft.database)
        state = _cut_copy(draft.database, iteration, seed, source.path)
        if budget is not None and budget <= state["spent"]:
            raise ValueError(
                f"budget: got {budget:g}, expected more than the {state['spent']:g} dollars"
                f" spent by iteration {iteration}"
            )
        _write_files(draft, config, state)
    return Fork(target, state["iterations"], state["spent"])


def _changed(config: RunConfig, budget: float | None, seed: int | None) -> RunConfig:
    wanted = {"budget": budget, "seed": seed}
    given = {name: value for name, value in wanted.items() if value is not None}
    return RunConfig.model_validate({**config.model_dump(), **given})


def _check_begun(source: RunFolder) -> None:
    if not source.database.is_file():
        raise ValueError(f"{source.path}: its run has not begun (there is no run.sqlite in it)")


def _check_empty(path: Path) -> None:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path}: exists, expected a new or an empty folder for the fork")


@contextmanager
def _built_beside(path: Path) -> Iterator[RunFolder]:
    """Lend a folder that becomes `path` when the block succeeds, and vanishes when it does not."""
    draft = path.absolute().with_name(f".{path.name}.{uuid4().hex}")
    make_folder(draft)
    try:
        yield RunFolder(draft)
        draft.replace(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _cut_copy(database: Path, iteration: int, seed: int | None, source: Path) -> SearchState:
    """Let a copied run end at an iteration, under a new id, and return its state there."""
    with closing(RunSaver(database, keep_history=True)) as saver:
        kept = _checkpoint_after(iteration, saver, source)
        state = cast(SearchState, kept.checkpoint["channel_values"])
        changes = SearchState(run_id=uuid4().hex)
        if seed is not None:
            changes = SearchState(**changes, run_seed=seed)
        saver.delete_thread(str(THREAD["configurable"]["thread_id"]))
        place = {**THREAD["configurable"], "checkpoint_ns": ""}
        begun: Checkpoint = {**kept.checkpoint, "channel_values": {**state, **changes}}
        saver.put({"configurable": place}, begun, kept.metadata, {})
    folder = str(source.resolve())
    cut = Cut(state["run_id"], iteration, state["archive_seq"], folder)
    cut_back(database, cut, changes["run_id"])
    return SearchState(**{**state, **changes})


def _checkpoint_after(
    iteration: int, saver: BaseCheckpointSaver[str], source: Path
) -> CheckpointTuple:
    """Return the checkpoint at the end of an iteration.

    Raises:
        ValueError: If it is not kept, naming those that are.
    """
    available = []
    for saved in saver.list(THREAD):
        ended = _ended_iteration(saved)
        if ended == iteration:
            return saved
        if ended is not None:
            available.append(ended)
    kept = f"{available[-1]} to {available[0]}" if available else "one that has ended"
    raise ValueError(
        f"iteration {iteration} of {source}: no checkpoint is kept of its end, expected {kept};"
        " a run with --keep-history keeps them all"
    )


def _ended_iteration(saved: CheckpointTuple) -> int | None:
    """Return the iteration that ended right before a checkpoint, if one did."""
    if "iterations" not in (saved.checkpoint["updated_channels"] or ()):
        return None
    ended: int = saved.checkpoint["channel_values"]["iterations"]
    return ended


def _write_files(folder: RunFolder, config: RunConfig, state: SearchState) -> None:
    with RunStore(folder.database) as store:
        StepLog(folder.steps, stored_rows(store, state["run_id"]))
        best = store.candidates.get(state["run_id"], state["best"])
    replace_text(folder.best_program, best.code)
    config.save(folder.settings)
