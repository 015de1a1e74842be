"""Searches that ask a server, for tests that kill processes and servers; savers in Postgres."""

from contextlib import closing, contextmanager

from fakes import toy_problem
from langgraph.checkpoint.postgres import PostgresSaver

from costada.controller.constants import Constants
from costada.graph.build import compile_search
from costada.models.chat_models import chat_model
from costada.nodes.settings import Settings
from costada.store.postgres_checkpoints import PostgresRunSaver
from costada.values.usage import Price

THREAD = {"configurable": {"thread_id": "run"}}


@contextmanager
def langgraphs_own(address):
    with PostgresSaver.from_conn_string(address) as saver:
        saver.setup()
        yield saver


SAVERS = {
    "of runs": lambda address: closing(PostgresRunSaver(address)),
    "LangGraph's": langgraphs_own,
}


def search(url, store, saver, iterations, parallel=1, longest_pause=60.0):
    settings = Settings(
        longest_pause=longest_pause,
        price=Price("0.6", "1.92"),
        constants=Constants(max_iterations=iterations),
        lost_calls="ignore",
    )
    model = chat_model("openai:stand-in", base_url=url, retry_wait=0, max_tokens=4000)
    return compile_search(
        toy_problem(),
        model,
        budget=10.0,
        settings=settings,
        checkpointer=saver,
        store=store,
        parallel=parallel,
    )


def execute_run(graph):
    """Start the run of the thread or continue it."""
    given = None if graph.get_state(THREAD).values else {"seed": 1}
    graph.invoke(given, THREAD, durability="sync")
