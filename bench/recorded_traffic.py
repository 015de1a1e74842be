"""What a run sends to its store in Postgres, recorded once and replayed as other runs.

A recorded action is a call of the store's engine or of the saver, with its arguments. A replay
makes the same calls on the same classes, under the ids of another run, so that rows, texts and
checkpoints are new ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from time import perf_counter
from typing import Any, NamedTuple

from costada.controller.constants import Constants
from costada.evaluators.registry import problem
from costada.graph.build import compile_search
from costada.models.chat_models import chat_model
from costada.nodes.settings import Settings
from costada.store.checkpoints import DeferredCheckpoint
from costada.store.lease import guarded_by
from costada.store.postgres_checkpoints import PostgresRunSaver
from costada.store.postgres_engine import READ, PostgresEngine
from costada.store.run_store import RunStore
from costada.values.usage import Price

PROBLEM, MODEL, THREAD = "circle_packing", "offline", "recorded"
PRICE = Price("0.6", "1.92")
MAX_ID = 80
"""Characters of the longest value that can be the id of a run or the hash of a text."""


class Action(NamedTuple):
    """One call: of the engine (`begin`, `end`, `rows`, `row`, `text`) or of the saver."""

    name: str
    arguments: tuple[Any, ...] = ()


@dataclass(slots=True)
class Recording:
    """The actions of a run, in order.

    Attributes:
        run_id: The run's id in the store.
        steps: The actions of each step.
        num_found: Rows that its queries returned.
        found_bytes: Characters and bytes in these rows.
        most_connections: Most connections that it had open after a step.
        text_characters: Characters of all prompts and answers.
    """

    run_id: str = ""
    steps: list[list[Action]] = field(default_factory=lambda: [[]])
    num_found: int = 0
    found_bytes: int = 0
    most_connections: int = 0
    text_characters: int = 0

    def add(self, name: str, *arguments: Any) -> None:
        """Note a call of the current step."""
        self.steps[-1].append(Action(name, arguments))

    @property
    def num_commits(self) -> int:
        """Commits that wait for the disk: all that do more than put rows or texts."""
        number, is_inside, waits = 0, False, False
        for name, arguments in (action for step in self.steps for action in step):
            if name == "begin":
                is_inside, waits = True, arguments[0]
            elif name == "end":
                is_inside, number = False, number + waits
            elif name == "checkpoint":
                number += 1
            elif name == "rows" and not READ.match(arguments[0].encode()):
                waits, number = True, number + (not is_inside)
        return number


class RecordingEngine(PostgresEngine):
    """Notes what it is asked for."""

    def __init__(self, address: str, recording: Recording) -> None:
        super().__init__(address)
        self._recording = recording

    @contextmanager
    def transaction(self, *, is_durable: bool = False) -> Iterator[None]:
        """As the engine does."""
        with super().transaction(is_durable=is_durable):
            self._recording.add("begin", is_durable)
            yield
            self._recording.add("end")

    def rows(
        self, statement: str, values: Sequence[object] = (), *, locks: bool = False
    ) -> list[tuple[Any, ...]]:
        """As the engine does."""
        self._recording.add("rows", statement, tuple(values), locks)
        found = super().rows(statement, values, locks=locks)
        self._recording.num_found += len(found)
        texts = (each for row in found for each in row if isinstance(each, str | bytes))
        self._recording.found_bytes += sum(map(len, texts))
        return found

    def put_row(self, table: str, row: Sequence[object]) -> None:
        """As the engine does."""
        self._recording.add("row", table, tuple(row))
        super().put_row(table, row)

    def put_blob(self, name: str, data: bytes) -> bool:
        """As the engine does."""
        self._recording.add("text", name, data)
        return super().put_blob(name, data)


class RecordingSaver(PostgresRunSaver):
    """Notes which checkpoints it writes."""

    recording: Recording

    def _write(self, held: DeferredCheckpoint) -> Any:
        place = held.config["configurable"]
        own = {name: value for name, value in place.items() if isinstance(value, str)}
        plain = {"configurable": own, "metadata": {**held.config.get("metadata", {})}}
        self.recording.add("checkpoint", held._replace(config=plain))
        return super()._write(held)


def record(address: str, iterations: int) -> Recording:
    """Run a search with the offline model in a database, and return what it sent there."""
    recording = Recording()
    settings = Settings(price=PRICE, constants=Constants(max_iterations=iterations))
    with (
        RunStore.postgres(address) as store,
        closing(RecordingSaver(address)) as saver,
    ):
        saver.recording = recording
        plain, store._db.engine = store._db.engine, RecordingEngine(address, recording)
        plain.close()
        graph = compile_search(
            problem(PROBLEM),
            chat_model(MODEL, seed=1),
            budget=1000.0,
            settings=settings,
            checkpointer=saver,
            store=store,
        )
        thread = {"configurable": {"thread_id": THREAD}}
        for update in graph.stream({"seed": 1}, thread, stream_mode="updates", durability="sync"):
            if any(isinstance(each, dict) and "iterations" in each for each in update.values()):
                own = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'costada'"
                ((number,),) = PostgresEngine.rows(store._db.engine, own)  # type: ignore[arg-type]
                recording.most_connections = max(recording.most_connections, number)
                recording.steps.append([])
        (recording.run_id,) = store.run_ids()
        calls = store.call_log.calls(recording.run_id)
        recording.text_characters = sum(len(call.prompt) + len(call.answer) for call in calls)
    del recording.steps[iterations:]  # what follows the last step
    return recording


class Replay:
    """Sends the steps of a recording as one more run."""

    def __init__(self, recording: Recording, run: str, store: RunStore) -> None:
        """Hold the run, as its process would."""
        self._recording, self._run = recording, run
        self._ids = {recording.run_id: run, THREAD: run}
        self._lease = store.hold(run)
        self._next = 0

    def step(
        self, engine: PostgresEngine, saver: PostgresRunSaver, took: dict[str, list[float]]
    ) -> None:
        """Send the next step, and add the seconds of each transaction to those of its kind."""
        actions = iter(self._recording.steps[self._next % len(self._recording.steps)])
        self._next += 1
        with guarded_by(self._lease):
            for action in actions:
                began = perf_counter()
                kind = self._send(action, actions, engine, saver)
                took.setdefault(kind, []).append(perf_counter() - began)

    def release(self) -> None:
        """Let go of the run."""
        if self._lease is not None:
            self._lease.release()

    def _send(
        self,
        action: Action,
        following: Iterator[Action],
        engine: PostgresEngine,
        saver: PostgresRunSaver,
    ) -> str:
        """Send an action, with `begin` all up to its `end`; returns the kind of transaction."""
        if action.name == "begin":
            with engine.transaction(is_durable=action.arguments[0]):
                for inner in following:
                    if inner.name == "end":
                        break
                    self._send(inner, following, engine, saver)
            return "transaction"
        if action.name == "rows":
            statement, values, locks = action.arguments
            engine.rows(statement, self._own(values), locks=locks)
            return "query" if READ.match(statement.encode()) else "single write"
        if action.name == "row":
            table, row = action.arguments
            engine.put_row(table, self._own(row))
            return "single write"
        if action.name == "text":
            name, data = action.arguments
            engine.put_blob(self._own((name,))[0], data)
            return "text"
        (held,) = action.arguments
        place = {**held.config["configurable"], "thread_id": self._run}
        saver._write(held._replace(config={**held.config, "configurable": place}))
        return "checkpoint"

    def _own(self, values: Sequence[Any]) -> list[Any]:
        """Values with the ids and hashes of this run in place of the recorded ones."""
        return [self._renamed(each) if isinstance(each, str) else each for each in values]

    def _renamed(self, value: str) -> str:
        if len(value) > MAX_ID:
            return value
        if value not in self._ids and len(value) == 2 * sha256().digest_size:
            self._ids[value] = sha256(f"{self._run} {value}".encode()).hexdigest()
        return self._ids.get(value, value)
