"""Evaluations in workers ask the models of their run, as those of this process do."""

import socket
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import ClassVar

import pytest
from billing_server import BillingServer, Refusal
from judged_functions import graded, graded_program
from judged_problems import PRICES, Providers, judged_folder
from ports import free_port, refusing_port
from remote_engines import threads
from test_remote_evaluations import compared

from costada.evaluators.folders import load_folder
from costada.evaluators.granted_models import ModelsUnreachable
from costada.evaluators.problem import Problem, confine
from costada.evaluators.remote.backend import EngineBackend, evaluated_by
from costada.nodes.calls.relayed_models import RelayedModels
from costada.runs.config import RunConfig
from costada.runs.plan import plan_run
from costada.runs.search_request import SearchRequest
from costada.runs.single_evaluation import RUN_ID, MeteredEvaluations
from costada.values.candidate import Program
from costada.values.evaluation import EVALUATOR_OUTAGE, WORKER, Evaluation

pytestmark = [pytest.mark.process, pytest.mark.filterwarnings("ignore::ResourceWarning")]

ASKING = """
import json
import os
from urllib.request import Request, urlopen


def asked(path, **body):
    data = json.dumps(body).encode() if body else None
    key = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    with urlopen(Request(f"{os.environ['OPENAI_BASE_URL']}/{path}", data, key)) as response:
        return response.read().decode()


def names():
    return " ".join(each["id"] for each in json.loads(asked("models"))["data"])


def chat(model, text, **more):
    messages = [{"role": "user", "content": text}]
    return asked("chat/completions", model=model, messages=messages, **more)


def number(model, text):
    return float(json.loads(chat(model, text))["choices"][0]["message"]["content"])
"""
"""Asks models without the SDK of OpenAI, whose import takes a second."""

AGENT = (
    ASKING
    + """

def value():
    print(names())
    events = chat("agent", "A large number?", stream=True).split("data: ")[1:-1]
    choices = [each for event in events for each in json.loads(event)["choices"]]
    return 0.5 * float("".join(each["delta"].get("content") or "" for each in choices))
"""
)
JUDGE = (
    ASKING
    + """

def score(output):
    return {
        "combined_score": output * number("judge", f"Is it large? {output}"),
        "models": names(),
        "has_key": str("sk-real" in str(dict(os.environ))),
    }
"""
)
WITH_PATH = (
    ASKING
    + """
import runpy


def evaluate(program_path):
    value = runpy.run_path(program_path)["value"]()
    return {"combined_score": value * number("judge", f"Is it large? {value}")}
"""
)


@pytest.fixture
def providers():
    return Providers()


@pytest.fixture
def server(providers, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-key-of-the-user")
    with BillingServer(default=providers.answer) as server:
        yield server


@pytest.fixture
def evaluated():
    """Evaluates a program, and returns its evaluation and the calls by role and dollars."""

    def evaluate(problem, program):
        evaluations = MeteredEvaluations(
            problem, RunConfig(problem="unused", retry_wait=0.01, longest_wait=0.02)
        )
        evaluation = evaluations.evaluate(program)
        calls = list(evaluations._store.call_log.calls(RUN_ID))
        return evaluation, sorted((each.role, each.prompt, each.cost, each.bound) for each in calls)

    return evaluate


def folder_of(tmp_path, url, evaluator):
    folder = judged_folder(tmp_path / "judged", url, evaluator, "timeout = 60")
    price_in, price_out = PRICES["judge-small"]
    with (folder / "problem.toml").open("a") as file:
        file.write(
            f"[candidate_models.agent]\nmodel = 'openai:judge-small'\nbase_url = '{url}'\n"
            f"price = '{price_in},{price_out}'\nmax_tokens = 1000\n"
        )
    return folder


@pytest.mark.parametrize("evaluator", [JUDGE, WITH_PATH], ids=["score", "evaluate"])
def test_judges_and_programs_ask_in_a_worker_as_they_do_in_this_process(
    evaluator, given, evaluated, server, providers, tmp_path
):
    found = load_folder(folder_of(tmp_path, server.url, evaluator))
    here, there = confine(found), confine(evaluated_by(found, given))
    expected, calls = evaluated(here, Program.of(AGENT))
    assert expected.score > 0.3
    assert Counter(role for role, *_ in calls) == {"evaluation": 1, "candidate": 1}
    for number in (2, 3):  # the second time in the processes of the first
        judged, alike = evaluated(there, Program.of(AGENT))
        assert WORKER in judged.artifacts
        assert compared(judged) == compared(expected)
        assert alike == calls
        assert providers.total == number * sum((each[2] for each in calls), Decimal(0))
    if evaluator == JUDGE:
        assert judged.artifacts["log"] == "agent\n"
        assert judged.artifacts["models"] == "judge"
        assert judged.artifacts["has_key"] == "False"


GRADED = Problem(
    name="graded",
    task="Return a large number, at most 1.",
    initial_program="def value():\n    return 0.5\n",
    evaluate=graded_program,
    models={"judge": {"model": "openai:judge-large", "price": "1,2"}},
)


@pytest.mark.parametrize("function", ["score", "evaluate"])
def test_a_problem_in_python_asks_its_models_in_a_worker(
    function, worker_engine, evaluated, server, providers
):
    price_in, price_out = PRICES["judge-large"]
    judge = {"model": "openai:judge-large", "base_url": server.url, "max_tokens": 1000}
    problem = Problem(
        name="judged",
        task="Return a large number, at most 1.",
        initial_program="def value():\n    return 0.5\n",
        entry_point="value",
        models={"judge": {**judge, "price": f"{price_in},{price_out}"}},
        **{function: {"score": graded, "evaluate": graded_program}[function]},
    )
    judged, calls = evaluated(replace(problem, backend=EngineBackend(worker_engine)), problem.start)
    assert judged.score > 0.3
    assert [role for role, *_ in calls] == ["evaluation"]
    assert sum((each[2] for each in calls), Decimal(0)) == providers.total


def test_workers_ask_at_the_address_that_is_given(evaluated, server, tmp_path):
    found = load_folder(judged_folder(tmp_path / "judged", server.url, JUDGE, "timeout = 60"))
    port = free_port()
    with threads() as executor:
        there = evaluated_by(found, executor, f"127.0.0.1:{port}")
        assert evaluated(confine(there), found.start)[0].is_valid
        with socket.create_connection(("127.0.0.1", port)):
            pass
        # An address of documentation, which no machine has.
        elsewhere = evaluated_by(found, executor, "203.0.113.9:4000")
        with pytest.raises(OSError, match=r"cannot listen at 203\.0\S+, port 4000 .*--endpoint"):
            evaluated(confine(elsewhere), found.start)


@pytest.mark.parametrize("place", ["taken", "foreign"])
def test_a_run_that_cannot_listen_at_its_endpoint_is_refused_before_it_begins(place, tmp_path):
    folder = judged_folder(tmp_path / "judged", "http://127.0.0.1:9", JUDGE)
    with refusing_port() as taken, threads() as executor:
        host, port = ("127.0.0.1", taken) if place == "taken" else ("203.0.113.9", 4000)
        config = RunConfig(problem=str(folder), model="offline", endpoint=f"{host}:{port}")
        with pytest.raises(OSError, match=rf"cannot listen at {host}, port {port} .*--endpoint"):
            plan_run(SearchRequest(config, executor=executor, sends_requests=False))


def test_a_worker_that_cannot_reach_the_run_says_what_it_tried():
    url = f"http://127.0.0.1:{free_port()}"
    with (
        pytest.raises(OSError, match=rf"cannot reach the models of the run at {url} .*--endpoint"),
        RelayedModels(url, "secret", {"evaluation": "token"}).attempt(),
    ):
        pass


def test_an_outage_of_a_judge_is_no_verdict_of_a_worker(given, evaluated, server, tmp_path):
    server.default = Refusal(503)
    folder = judged_folder(tmp_path / "judged", server.url, settings="timeout = 60")
    problem = confine(evaluated_by(load_folder(folder), given))
    judged, calls = evaluated(problem, problem.start)
    assert EVALUATOR_OUTAGE in judged.artifacts
    assert sum((each[2] for each in calls), Decimal(0)) == 0


@dataclass(frozen=True)
class ReachedAt:
    """Models of a run that workers reach from an attempt on; all parts of `SendableModels`."""

    first_reached: int
    attempts: ClassVar[list[None]] = []

    def for_worker(self, host, port):
        return self

    @contextmanager
    def attempt(self):
        self.attempts.append(None)
        if len(self.attempts) < self.first_reached:
            raise ModelsUnreachable("the run cannot be reached")
        yield self

    def call(self, problem, called, output):
        return Evaluation(score=0.5, objective=0.5, is_valid=True)


@pytest.mark.parametrize(("attempt", "is_reached"), [(3, True), (4, False)])
def test_a_worker_that_cannot_reach_the_run_is_lost_to_an_evaluation(attempt, is_reached):
    ReachedAt.attempts.clear()
    with threads() as executor:
        problem = evaluated_by(GRADED, executor)
        if is_reached:
            judged = problem.evaluate_program(problem.start, models=ReachedAt(attempt))
            assert judged.score == 0.5
        else:
            with pytest.raises(OSError, match="the run cannot be reached"):
                problem.evaluate_program(problem.start, models=ReachedAt(attempt))
    assert len(ReachedAt.attempts) == 3
