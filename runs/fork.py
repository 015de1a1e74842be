"""Forks a run at an earlier iteration; the original is not changed."""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple

from costada.nodes.charge_ledger import spent_by_ledger
from costada.nodes.saved_state import seal_of
from costada.nodes.state import Flight, SearchState, plain, restore
from costada.runs.config import STORED, RunConfig
from costada.runs.folder import THREAD, RunFolder
from costada.runs.run_files import StepLog
from costada.store.checkpoints import RunSaver
from costada.store.files import make_folder
from costada.store.run_copy import Cut, copy_file, cut_back
from costada.store.run_store import RunStore
from costada.store.user_inputs import UserInput
from costada.values.numbering import Iteration
from costada.values.program_form import PYTHON, file_ending


@dataclass(frozen=True, slots=True)
class Fork:
    """A forked run, ready to be resumed.

    Attributes:
        folder: Its folder.
        iterations: Number of copied iterations.
        spent: Dollars of their calls, which are in its call log.
        in_flight: Dollars of further copied calls, of steps that were in flight then; they are
            charged when these steps land.
    """

    folder: RunFolder
    iterations: Iteration
    spent: float
    in_flight: float


def fork_run(
    source: RunFolder,
    iteration: int,
    target: RunFolder,
    *,
    budget: float | None = None,
    seed: int | None = None,
    trust: bool = False,
) -> Fork:
    """Create a new run in the state that another one had at the end of an iteration.

    It has the programs, the trace and the call log up to there, its own id, a reference to the
    original, and the original's settings unless others are given. The original is only read, and
    may be running.

    Args:
        source: The original.
        iteration: The last iteration to copy.
        target: A new or empty folder.
        budget: Dollars that the new run may spend, including the copied calls (B).
        seed: Random seed from there on.
        trust: Whether the fork may load a problem that came with the original, and keep a weak
            sandbox that it requests; see `RunFolder.check_trusted`.

    Raises:
        ValueError: If there is no run, it is not trusted, there is no checkpoint of that iteration,
            the budget is spent already, the target is not empty, or the original's run file is
            damaged.
        pydantic.ValidationError: If budget or seed is invalid.
        OSError: If a file cannot be read or written.
    """
    changes = {"budget": budget, "seed": seed}
    given = {name: value for name, value in changes.items() if value is not None}
    config = RunConfig.model_validate({**source.load().model_dump(), **given}, context=STORED)
    if not trust:
        source.check_trusted()
    if not isinstance(source.database, Path) or not isinstance(target.database, Path):
        raise ValueError("fork: got a run in Postgres, expected the folder of a run")
    if not source.database.is_file():
        raise ValueError(f"{source.path}: its run has not started (there is no run.sqlite in it)")
    path = target.path
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path}: exists, expected a new or an empty folder for the fork")
    with _draft(path) as draft:
        database = draft.path / source.database.name
        # By the backup of SQLite, which takes one state of a file that a run may be writing.
        copy_file(source.database, database)
        state = _cut_copy(database, Iteration(iteration), seed, source.path)
        with RunStore(database) as store:
            spent = spent_by_ledger(state, store)
            if budget is not None and budget <= spent:
                raise ValueError(
                    f"budget: got {budget:g}, expected more than the {spent:g} dollars"
                    f" spent by iteration {iteration}"
                )
            StepLog(draft.steps, store.step_lines(state["run"].id))
            best = store.candidates.get(state["run"].id, state.get("result", state["best"]))
            setup = store.setup(state["run"].id)
            if setup:  # the purse has paid for the original only
                store.put_setup(state["run"].id, replace(setup, purse=""))
            in_flight = store.ledger.unsettled_cost(
                state["run"].id, state["iterations"], counts_lost=config.lost_calls == "count"
            )
        begun = setup.problem if setup else {}
        ending = file_ending(begun.get("file_name", ""), begun.get("language", PYTHON.name))
        draft.write_best_program(best.program, ending)
        draft.save(config)
    return Fork(target, state["iterations"], spent, float(in_flight))


@contextmanager
def _draft(path: Path) -> Iterator[RunFolder]:
    """Provide a folder that becomes `path` when the block succeeds, and is removed otherwise."""
    # Beside the target, on the same file system: the rename is atomic, and a fork that is killed
    # leaves no folder that looks like a run.
    draft = path.absolute().with_name(f".{path.name}.{uuid4().hex}")
    make_folder(draft)
    try:
        yield RunFolder(draft)
        draft.replace(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _cut_copy(database: Path, iteration: Iteration, seed: int | None, source: Path) -> SearchState:
    """Cut a copied run back to an iteration, give it a new id, and return its state there."""
    with closing(RunSaver(database, keep_history=True)) as saver, RunStore(database) as store:
        kept = _checkpoint_after(iteration, saver, source)
        saved = kept.checkpoint["channel_values"]
        state = restore(saved)
        begun = state["run"]
        run = replace(begun, id=uuid4().hex, seed=begun.seed if seed is None else seed)
        changes: SearchState = {"run": run}
        if (setup := store.setup(begun.id)) and setup.seal_key:
            # The seal covers id and seed: a resume refuses the state with that of the original.
            changes["seal"] = seal_of({**state, **changes}, setup.seal_key)
        written = {name: plain(value) for name, value in changes.items()}
        # Later checkpoints go first: the newest of a thread is the one that a resume loads.
        saver.delete_thread(str(THREAD["configurable"]["thread_id"]))
        place = {**THREAD["configurable"], "checkpoint_ns": ""}
        first: Checkpoint = {**kept.checkpoint, "channel_values": {**saved, **written}}
        saver.put({"configurable": place}, first, kept.metadata, {})
        flight = state["flight"]
        waiting = [
            each.number
            for each in store.inputs.all_unjudged(begun.id)
            if _waits(each, store, flight)
        ]
    cut = Cut(
        run_id=begun.id,
        iteration=iteration,
        archive_seq=state["archives"].seq,
        landings=flight.num_landed,
        last_ticket=flight.last_ticket,
        in_flight={ticket.number: ticket.attempt for ticket in flight.tickets},
        waiting=tuple(waiting),
        folder=str(source.resolve()),
    )
    cut_back(database, cut, run.id)
    return {**state, **changes}


def _waits(unjudged: UserInput, store: RunStore, flight: Flight) -> bool:
    """Whether a program waited for its evaluation while these tickets were in flight.

    The last ticket that could not pay for it had landed, and no other had taken it.
    """
    known = store.inputs.unjudged(unjudged.text)
    if known is None:
        return False
    made_by, _ = known.calls[-1]
    has_landed = made_by <= flight.last_ticket and made_by not in flight.open_tickets
    return has_landed and (unjudged.ticket is None or unjudged.ticket > flight.last_ticket)


def _checkpoint_after(
    iteration: Iteration, saver: BaseCheckpointSaver[str], source: Path
) -> CheckpointTuple:
    """The checkpoint at the end of an iteration; raises `ValueError` if it is not kept."""
    available: list[int] = []
    for saved in saver.list(THREAD):
        if "iterations" in (saved.checkpoint["updated_channels"] or ()):
            ended = saved.checkpoint["channel_values"]["iterations"]
            if ended == iteration:
                return saved
            available.append(ended)
    kept = f"{available[-1]} to {available[0]}" if available else "one that has ended"
    raise ValueError(
        f"iteration {iteration} of {source}: no checkpoint of its end is kept, expected {kept};"
        " a run with --keep-history keeps all checkpoints"
    )
