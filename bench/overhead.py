"""What CostAda adds to a step: time and bytes per iteration, against a bare LangGraph loop.

Both loops have eight nodes, checkpoint every one of them into SQLite with the same settings and
stream their updates. The model and the evaluator answer at once, with programs of about 5 KB;
everything else is the product. CostAda is measured three times: with old checkpoints pruned, as
`costada run` does, with all of them kept (`--keep-history`), as the bare loop does, and pruned with
eight steps in flight. With the address of a Postgres server in `COSTADA_POSTGRES` it is measured
there as well, in a new database. The loops take turns, so that a busy machine slows all of them.

    python bench/overhead.py [--iterations 5000] [--window 50]
"""

import argparse
import os
import random
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from costada import Evaluation, Price, Problem, create_discovery_graph
from costada.store.checkpoints import RunSaver
from costada.store.postgres_checkpoints import PostgresRunSaver
from costada.store.run_store import RunStore
from costada.store.sqlite_engine import connect

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from new_database import new_database

MARKS = (100, 1000, 5000)
TURN = 10
"""Iterations after which it is another loop's turn."""

THREAD = {"configurable": {"thread_id": "1"}}
NUM_NODES = 8
FILLER = "".join(f"# line {line}: {line * 7919 % 1009} of the constructor\n" for line in range(120))
HEAD = "# EVOLVE-BLOCK-START\ndef value():\n    return "
TAIL = "\n# EVOLVE-BLOCK-END\n"
IDEAS = '{"ideas": [{"idea": "i", "description": "d", "approach_type": "a.b"}]}'


class InstantModel(BaseChatModel):
    """Proposes another number in a program of 5 KB, without delay."""

    rng: Any = random.Random(0)

    @property
    def _llm_type(self) -> str:
        return "instant"

    def _get_ls_params(self, stop: Any = None, **kwargs: Any) -> Any:
        return {"ls_provider": "bench", "ls_model_name": "instant", "ls_model_type": "chat"}

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        is_guide = "# Output" in str(messages[-1].content)
        value = self.rng.random()
        words = [f"# word {self.rng.randrange(10**6)}\n" for _ in range(10)]
        text = IDEAS if is_guide else f"```python\n{HEAD}{value}\n{''.join(words)}{FILLER}{TAIL}```"
        usage = {"input_tokens": 1000, "output_tokens": 500, "total_tokens": 1500}
        message = AIMessage(content=text, usage_metadata=usage)  # type: ignore[arg-type]
        return ChatResult(generations=[ChatGeneration(message=message)])


def evaluate(code: str) -> Evaluation:
    """Score the number in the program at once."""
    found = re.search(r"return ([\d.e-]+)", code)
    value = float(found.group(1)) if found else 0.0
    return Evaluation(score=value, objective=value, is_valid=True)


PROBLEM = Problem(
    name="bench",
    task="Any number.",
    initial_program=HEAD + "0.0" + TAIL,
    evaluate=evaluate,
    entry_point="value",
)


class Count(TypedDict):
    """The state of the bare loop."""

    iteration: int


@dataclass(frozen=True)
class Sample:
    """Milliseconds and kilobytes per iteration over a window that ends at an iteration."""

    iteration: int
    milliseconds: float
    kilobytes: float


def costada_loop(
    path: Path, iterations: int, *, keep_history: bool = False, parallel: int = 1, address: str = ""
) -> Iterator[int]:
    """Yield the number of each finished iteration of a discovery run, in a file or in Postgres."""
    saver: RunSaver | PostgresRunSaver
    if address:
        opened, saver = RunStore.postgres(address), PostgresRunSaver(address)
    else:
        opened, saver = RunStore(path), RunSaver(path, keep_history=keep_history)
    with opened as store, closing(saver):
        graph = create_discovery_graph(
            PROBLEM,
            InstantModel(),
            budget=1e6,
            price=Price(1, 2),
            max_iterations=iterations,
            checkpointer=saver,
            store=store,
            parallel=parallel,
        )
        for update in graph.stream({}, THREAD, stream_mode="updates", durability="sync"):
            if "iterations" in update.get("gate_intervention", {}):
                yield update["gate_intervention"]["iterations"]


def bare_loop(path: Path, iterations: int) -> Iterator[int]:
    """Yield the number of each finished round of eight nodes that only count."""
    names = [f"node_{index}" for index in range(NUM_NODES)]
    graph = StateGraph(Count)
    for name in names:
        step = 1 if name == names[-1] else 0
        graph.add_node(name, lambda state, step=step: {"iteration": state["iteration"] + step})
    graph.add_edge(START, names[0])
    for first, second in pairwise(names):
        graph.add_edge(first, second)
    graph.add_conditional_edges(
        names[-1], lambda state: END if state["iteration"] >= iterations else names[0]
    )
    config = {**THREAD, "recursion_limit": NUM_NODES * iterations + 10}
    with closing(connect(path)) as connection:
        compiled = graph.compile(checkpointer=SqliteSaver(connection))
        for update in compiled.stream(
            {"iteration": 0}, config, stream_mode="updates", durability="sync"
        ):
            if names[-1] in update:
                yield update[names[-1]]["iteration"]


LOOPS = {
    "bare": bare_loop,
    "pruned": costada_loop,
    "all kept": partial(costada_loop, keep_history=True),
    "K = 8": partial(costada_loop, parallel=8),
}


def measure(folder: Path, iterations: int, window: int) -> dict[str, list[Sample]]:
    """Run all loops side by side on fresh files and sample them as each of the marks is reached."""
    marks = sorted({min(mark, iterations) for mark in MARKS})
    paths = {name: folder / f"{name}.sqlite" for name in LOOPS}
    databases = {name: path for name, path in paths.items() if name != "postgres"}
    loops = {name: loop(paths[name], iterations) for name, loop in LOOPS.items()}
    samples: dict[str, list[Sample]] = {name: [] for name in LOOPS}
    at = 0
    for mark in marks:
        for loop in loops.values():
            advance(loop, mark - window - at)
        sizes = {name: size_of(path) for name, path in databases.items()}
        seconds = dict.fromkeys(LOOPS, 0.0)
        for _ in range(window // TURN):
            for name, loop in loops.items():
                began = time.perf_counter()
                advance(loop, TURN)
                seconds[name] += time.perf_counter() - began
        for name in LOOPS:
            grown = size_of(paths[name]) - sizes[name] if name in sizes else float("nan")
            sample = Sample(mark, 1e3 * seconds[name] / window, grown / 1e3 / window)
            samples[name].append(sample)
        at = mark
    for loop in loops.values():
        loop.close()
    return samples


def advance(loop: Iterator[int], count: int) -> None:
    """Let a loop finish a number of iterations."""
    for _ in range(count):
        next(loop)


def size_of(path: Path) -> int:
    """The bytes of a database, what its log holds included."""
    with closing(sqlite3.connect(path)) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        return pages * connection.execute("PRAGMA page_size").fetchone()[0]


def main() -> None:
    """Print the loops side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=MARKS[-1])
    parser.add_argument("--window", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        if server := os.environ.get("COSTADA_POSTGRES"):
            address = opened.enter_context(new_database(server))
            LOOPS["postgres"] = partial(costada_loop, address=address)
        samples = measure(Path(folder), options.iterations, options.window)
    fields = ("milliseconds", "kilobytes")
    print(f"{'':12}" + "".join(f"{field + ' per iteration':<48}" for field in fields))
    names = "".join(f"{name:>10}" for name in LOOPS) + f"{'ratio':>7} "
    print(f"{'iteration':12}" + names * 2)
    for row in zip(*samples.values(), strict=True):
        print(f"{row[0].iteration:<12}" + "".join(figures(row, field) for field in fields))
    growth = [[getattr(s[-1], f) / getattr(s[0], f) for s in samples.values()] for f in fields]
    print(
        f"{'last / first':12}" + "".join("".join(f"{g:10.2f}" for g in f) + " " * 8 for f in growth)
    )


def figures(row: Sequence[Sample], field: str) -> str:
    """The figures of all loops, and the ratio of the pruned one to the bare one."""
    values = [getattr(sample, field) for sample in row]
    return "".join(f"{value:10.2f}" for value in values) + f"{values[1] / values[0]:7.2f} "


if __name__ == "__main__":
    main()
