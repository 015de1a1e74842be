"""Models that evaluators ask: on the ledger of the run, answered again after a crash."""

import json
import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from threading import Event, current_thread
from types import SimpleNamespace

import pytest
from billing_server import Drip, Refusal, Reply
from fakes import SEED_PROGRAM
from judged_functions import graded, graded_program
from judged_problems import PRICES, judged_folder
from waiting import within
from warm import PATIENCE_SECONDS

from costada.evaluators.folders import load_folder
from costada.evaluators.problem import Problem
from costada.models.asking import RequestNotSent
from costada.models.chat_models import chat_model
from costada.models.endpoint.client_requests import asked_for
from costada.models.menu import MenuModel
from costada.nodes.calls import granted_calls
from costada.nodes.calls.budget import affordable_answer
from costada.nodes.calls.journal import CallJournal
from costada.nodes.calls.paid_evaluations import MAX_ALONE
from costada.runs.config import RunConfig
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.runs.single_evaluation import MeteredEvaluations
from costada.store.rows import LandedTickets
from costada.store.run_store import RunStore
from costada.values.model_access import CLIENT_VARIABLES
from costada.values.numbering import TicketNumber
from costada.values.usage import Price

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def run(folder, server, out, **options):
    return discover(
        folder,
        chat_model("openai:writer", base_url=server.url, retry_wait=0, max_tokens=1000),
        out=out,
        price=Price(*PRICES["writer"]),
        **{"budget": 0.05, "seed": 2, **options},
    )


def in_settings(folder, old, new):
    settings = folder / "problem.toml"
    settings.write_text(settings.read_text().replace(old, new))


def ledger_of(out):
    with RunStore(RunFolder(out).database) as store:
        (run_id,) = store.run_ids()
        return list(store.call_log.calls(run_id)), store.steps(run_id)


def test_the_calls_of_an_evaluator_are_on_the_ledger(tmp_path, server, providers):
    folder = judged_folder(tmp_path / "judged", server.url)
    found = run(folder, server, tmp_path / "run", max_iterations=4)
    calls, steps = ledger_of(tmp_path / "run")
    by_role = {}
    for call in calls:
        by_role[call.role] = by_role.get(call.role, Decimal(0)) + call.cost
    assert by_role.pop("evaluation") == providers.bill["judge-large"]
    assert sum(by_role.values()) == providers.bill["writer"]
    assert found.spent == pytest.approx(float(providers.total), rel=1e-12)
    start = sum(call.cost for call in calls if call.ticket == 0)
    assert start > 0
    assert float(start) + sum(step["step_cost"] for step in steps) == pytest.approx(found.spent)


def test_what_a_request_asks_is_not_read_where_calls_are_made(tmp_path, server, monkeypatch):
    threads = []

    def noted(request):
        threads.append(current_thread().name)
        return asked_for(request)

    monkeypatch.setattr(granted_calls, "asked_for", noted)
    folder = judged_folder(tmp_path / "judged", server.url)
    run(folder, server, tmp_path / "run", max_iterations=1)
    assert set(threads) == {"costada-model"}


def test_eight_steps_at_once_are_charged_what_their_judges_cost(tmp_path, server, providers):
    folder = judged_folder(tmp_path / "judged", server.url)
    out = tmp_path / "run"
    found = run(folder, server, out, max_iterations=12, parallel=8, gateway=False, budget=1.0)
    calls, steps = ledger_of(out)
    tickets = {step["ticket"]: Decimal(0) for step in steps}
    for call in calls:
        if call.ticket:
            tickets[call.ticket] += call.cost + call.bound
    assert {step["ticket"]: pytest.approx(step["step_cost"]) for step in steps} == {
        ticket: float(cost) for ticket, cost in tickets.items()
    }
    assert sum(call.cost for call in calls) == providers.total
    assert found.spent == pytest.approx(float(providers.total), rel=1e-12)


SHOWING = """
import os
from pathlib import Path

def score(output):
    try:
        started_with = Path("/proc/self/environ").read_bytes().decode(errors="replace")
    except PermissionError:
        started_with = ""
    return {
        "combined_score": output,
        "key": os.environ["OPENAI_API_KEY"],
        "secrets": str("sk-real" in str(dict(os.environ)) + started_with),
        "is_in_proc": str(os.environ["OPENAI_API_KEY"] in started_with),
    }
"""


def test_an_evaluator_has_a_token_of_its_own_and_no_key(tmp_path, server):
    folder = judged_folder(tmp_path / "judged", server.url, evaluator=SHOWING)
    out = tmp_path / "run"
    run(folder, server, out, max_iterations=1)
    with RunStore(RunFolder(out).database) as store:
        seed = store.candidates.get(store.last_run(), "0.1")
    assert len(seed.artifacts["key"]) >= 32
    assert (seed.artifacts["secrets"], seed.artifacts["is_in_proc"]) == ("False", "False")


ASKING_ON_IMPORT = """
from openai import OpenAI

CLIENT = OpenAI(max_retries=0)
try:
    CLIENT.chat.completions.create(model="judge", messages=[{"role": "user", "content": "hello"}])
except Exception:
    if IS_REQUIRED:
        raise

def score(output):
    return {"combined_score": output}
"""


@pytest.mark.parametrize("table", ["models", "candidate_models"])
@pytest.mark.parametrize("is_required", [True, False])
def test_an_evaluator_asks_nobody_with_the_users_key_while_it_is_loaded(
    tmp_path, server, monkeypatch, is_required, table
):
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    evaluator = ASKING_ON_IMPORT.replace("IS_REQUIRED", str(is_required))
    folder = judged_folder(tmp_path / "judged", server.url, evaluator=evaluator)
    in_settings(folder, "[models.judge]", f"[{table}.judge]")
    if is_required:
        reason = r"evaluator\.py, line 6: APIConnectionError: .*; an evaluator asks its models in"
        with pytest.raises(ValueError, match=reason):
            load_folder(folder)
    else:
        load_folder(folder)
    assert server.requests == []
    assert os.environ["OPENAI_API_KEY"] == "sk-real-key-of-the-user"
    assert os.environ["OPENAI_BASE_URL"] == server.url
    assert "ANTHROPIC_BASE_URL" not in os.environ


WAITING_ON_IMPORT = """
from gate import is_loading, may_go_on

is_loading.set()
may_go_on.wait()

def score(output):
    return {"combined_score": output}
"""


def test_no_model_of_a_run_is_made_while_an_evaluator_is_loaded(tmp_path, server, monkeypatch):
    gate = SimpleNamespace(is_loading=Event(), may_go_on=Event())
    monkeypatch.setitem(sys.modules, "gate", gate)
    folder = judged_folder(tmp_path / "judged", server.url, evaluator=WAITING_ON_IMPORT)
    with ThreadPoolExecutor(1) as thread:
        loaded = thread.submit(load_folder, folder)
        assert gate.is_loading.wait(PATIENCE_SECONDS)
        key, is_free = os.environ["OPENAI_API_KEY"], CLIENT_VARIABLES.acquire(blocking=False)
        gate.may_go_on.set()
        loaded.result(PATIENCE_SECONDS)
    assert (key, is_free) == ("none", False)
    model = chat_model("openai:writer", base_url=server.url).bound
    assert model.openai_api_key.get_secret_value() == "sk-real-key-of-the-user"


WRONG = """
from openai import NotFoundError, OpenAI

def score(output):
    try:
        OpenAI().chat.completions.create(model="gpt-5.4", messages=[])
    except NotFoundError as error:
        return {"combined_score": output, "said": str(error)}
"""


def test_a_model_that_is_not_listed_is_refused_and_costs_nothing(tmp_path, server, providers):
    folder = judged_folder(tmp_path / "judged", server.url, evaluator=WRONG)
    out = tmp_path / "run"
    run(folder, server, out, max_iterations=1)
    with RunStore(RunFolder(out).database) as store:
        seed = store.candidates.get(store.last_run(), "0.1")
    assert "model: got 'gpt-5.4', expected one of 'judge'" in seed.artifacts["said"]
    assert set(providers.bill) == {"writer"}


def test_a_model_without_a_price_is_refused_before_anything_is_sent(tmp_path, server):
    folder = judged_folder(tmp_path / "judged", server.url)
    in_settings(folder, "price =", "# price =")
    with pytest.raises(ValueError) as refused:
        run(folder, server, tmp_path / "run", max_iterations=1)
    assert str(refused.value) == (
        "problem.toml, [models.judge]: model 'judge-large' has no known price; give one:"
        ' [models.judge] with model = "openai:judge-large" and price = "IN,OUT", in dollars per'
        " million tokens"
    )
    assert not server.requests


def test_a_model_of_a_problem_in_python_without_a_price_is_refused_with_how_to_give_one(
    tmp_path, server
):
    problem = Problem(
        name="graded",
        task="Return a large number.",
        initial_program=SEED_PROGRAM,
        entry_point="value",
        score=graded,
        models={"judge": chat_model("openai:judge-large", base_url=server.url)},
    )
    with pytest.raises(ValueError) as refused:
        run(problem, server, tmp_path / "run", max_iterations=1)
    said = str(refused.value)
    assert said.startswith("Problem(models={\"judge\": ...}): model 'judge-large' has no known")
    assert "other_prices={'judge-large': Price(IN, OUT)}" in said


def test_a_model_of_a_folder_that_is_unknown_is_named_with_its_place(tmp_path, server):
    folder = judged_folder(tmp_path / "judged", server.url)
    in_settings(folder, "[models.judge]", '[models]\njudge = "judge-1"\n[models.other]')
    place = r"^problem\.toml, \[models\.judge\]: Unknown model 'judge-1'"
    with pytest.raises(ValueError, match=place):
        run(folder, server, tmp_path / "run", max_iterations=1)


def test_a_judge_that_is_declared_for_programs_is_refused_and_not_asked_with_the_users_key(
    tmp_path, server, monkeypatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    folder = judged_folder(tmp_path / "judged", server.url)
    in_settings(folder, "[models.judge]", "[candidate_models.judge]")
    evaluations = MeteredEvaluations(load_folder(folder), RunConfig(problem=str(folder)))
    evaluation = evaluations.evaluate(evaluations.problem.start)
    assert "declares no model that its evaluator asks: [models] in problem.toml" in evaluation.error
    assert evaluations.bill == "none was asked"
    assert server.requests == []


@pytest.mark.parametrize("table", ["models", "candidate_models"])
def test_a_problem_is_not_evaluated_without_the_models_that_it_asks(
    tmp_path, server, monkeypatch, table
):
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    folder = judged_folder(tmp_path / "judged", server.url)
    in_settings(folder, "[models.judge]", f"[{table}.judge]")
    with pytest.raises(ValueError, match="which only a run grants; expected costada evaluate"):
        load_folder(folder).evaluate(SEED_PROGRAM)
    assert server.requests == []


KEEPING = """
import threading
from pathlib import Path

from openai import APIConnectionError, AuthenticationError, OpenAI

CLIENT = OpenAI(max_retries=0)


def ask_on():
    while not Path(REFUSED).exists():
        try:
            CLIENT.models.list()
        except APIConnectionError:
            continue
        except AuthenticationError:
            Path(REFUSED).touch()


THREAD = threading.Thread(target=ask_on, daemon=True)


def score(output):
    if not THREAD.ident:
        THREAD.start()
    return {"combined_score": output, "is_refused": str(Path(REFUSED).exists())}
"""


def test_a_token_is_worth_nothing_between_evaluations(tmp_path, server, providers):
    refused, out = tmp_path / "refused", tmp_path / "run"
    evaluator = KEEPING.replace("REFUSED", repr(str(refused)))
    folder = judged_folder(tmp_path / "judged", server.url, evaluator=evaluator)

    def answer_between_evaluations(body):
        within(PATIENCE_SECONDS, refused.exists)
        return providers.answer(body)

    server.default = answer_between_evaluations
    run(folder, server, out, max_iterations=2)
    with RunStore(RunFolder(out).database) as store:
        found = store.candidates.population(store.last_run(), LandedTickets(TicketNumber(9)))
    said = [each.artifacts["is_refused"] for each in found]
    assert (said[0], said[-1]) == ("False", "True")
    assert set(providers.bill) == {"writer"}


def test_what_an_evaluation_costs_stays_below_its_limit(tmp_path, server, providers):
    # Two questions cost some $0.002 to $0.006 each; a bound allows for 1,000 tokens of an answer.
    limit = "evaluation_dollars = 0.02"
    folder = judged_folder(tmp_path / "judged", server.url, MANY, settings=limit)
    out = tmp_path / "run"
    run(folder, server, out, max_iterations=2, budget=1.0)
    calls, _ = ledger_of(out)
    judging = {}
    for call in calls:
        if call.role == "evaluation":
            judging[call.ticket] = judging.get(call.ticket, 0) + call.cost
    assert max(judging.values()) <= Decimal("0.02")
    with RunStore(RunFolder(out).database) as store:
        seed = store.candidates.get(store.last_run(), "0.1")
    assert seed.is_valid
    assert "left of evaluation_dollars" in seed.artifacts["said"]


MANY = """
from openai import APIStatusError, OpenAI

CLIENT = OpenAI(max_retries=0)

def score(output):
    for number in range(100):
        try:
            CLIENT.chat.completions.create(
                model="judge", messages=[{"role": "user", "content": f"{number} {output}"}]
            )
        except APIStatusError as error:
            return {"combined_score": output, "said": str(error), "status": error.status_code}
    return {"combined_score": output}
"""


COUNTED = "range(1 if output == 0.10 else 100)"


def test_a_candidate_whose_evaluation_is_refused_for_its_limit_has_failed(tmp_path, server):
    evaluator = MANY.replace("APIStatusError as", "KeyError as").replace("range(100)", COUNTED)
    limit = "evaluation_dollars = 0.02"
    folder = judged_folder(tmp_path / "judged", server.url, evaluator, settings=limit)
    out = tmp_path / "run"
    found = run(folder, server, out, max_iterations=2, budget=1.0)
    _, steps = ledger_of(out)
    assert found.iterations == 2
    assert any("left of evaluation_dollars" in (step["failure"] or "") for step in steps)


AT_ONCE = """
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

CLIENT = OpenAI(max_retries=0)

def asked(number):
    question = [{"role": "user", "content": f"Question {number}"}]
    return CLIENT.chat.completions.create(model="judge", messages=question)

def score(output):
    with ThreadPoolExecutor(2) as pool:
        return {"combined_score": output + 0 * len(list(pool.map(asked, range(2))))}
"""


def test_a_question_waits_while_another_has_reserved_what_is_left(
    tmp_path, server, providers, monkeypatch
):
    # One question can cost $0.0153 and costs at most $0.005. It has reserved that much, and is
    # not on its way yet, when the other one asks for its share.
    begin, is_short = CallJournal.begin, Event()

    def begin_late(journal, sent):
        begin(journal, sent)
        assert is_short.wait(PATIENCE_SECONDS)

    def affordable(*given):
        try:
            return affordable_answer(*given)
        except RequestNotSent:
            is_short.set()
            raise

    monkeypatch.setattr(CallJournal, "begin", begin_late)
    monkeypatch.setattr(granted_calls, "affordable_answer", affordable)
    limit = "evaluation_dollars = 0.0175"
    folder = judged_folder(tmp_path / "judged", server.url, AT_ONCE, settings=limit)
    run(folder, server, tmp_path / "run", max_iterations=1, budget=1.0)
    calls, _ = ledger_of(tmp_path / "run")
    assert sum(call.ticket == 0 for call in calls) == 2


def test_a_hard_budget_is_never_exceeded_and_what_waits_is_judged_first(
    tmp_path, server, providers
):
    folder = judged_folder(tmp_path / "judged", server.url)
    out = tmp_path / "run"
    options = {"budget_policy": "hard", "max_iterations": 30}
    first = run(folder, server, out, budget=0.06, **options)
    assert first.stop_reason == "budget"
    assert providers.total <= Decimal("0.06")
    _, steps = ledger_of(out)
    assert "unjudged" in steps[-1]["events"]
    second = run(folder, server, out, budget=0.09, resume=True, **options)
    assert providers.total <= Decimal("0.09")
    _, later = ledger_of(out)
    following = later[len(steps)]
    assert "judged_later" in following["events"]
    assert following["score"] is not None
    assert second.iterations > first.iterations


@pytest.mark.parametrize("parallel", [1, 4])
def test_an_outage_of_a_judge_pauses_the_run(tmp_path, server, providers, parallel, caplog):
    folder = judged_folder(tmp_path / "judged", server.url)
    refused = []

    def at_times_down(body):
        # The start's judge and a later one are down for longer than a request is repeated.
        if body["model"] != "writer" and len(refused) < 24 and len(refused) % 12 < 11:
            refused.append(body)
            return Refusal(429, "slow down")
        if body["model"] != "writer" and len(refused) < 24:
            refused.append(body)
        return providers.answer(body)

    server.default = at_times_down
    waits = {"retry_wait": 0.01, "longest_wait": 0.02, "parallel": parallel, "gateway": False}
    out = tmp_path / "run"
    found = run(folder, server, out, max_iterations=4, **waits)
    assert found.stop_reason == "iterations"
    assert len(refused) == 24
    paused = next(text for text in caplog.messages if "the evaluator's model" in text)
    assert (paused.count("Error code"), paused.count("slow down")) == (1, 1)
    calls, steps = ledger_of(out)
    assert sum(call.cost for call in calls) == providers.total
    assert all(step["score"] is not None or step["failure"] for step in steps)
    assert not any("429" in (step["failure"] or "") for step in steps)


PROBE = "judge-large", "Say yes."
WAITS = {"retry_wait": 0.01, "longest_wait": 0.02, "gateway": False}


def check_that_none_is_bought_twice(out, providers, num_probes):
    """Check that ledger and bill agree, and that only the short question was asked again."""
    calls, _ = ledger_of(out)
    assert sum(call.cost for call in calls) == providers.total
    repeated = {asked: n for asked, n in providers.billed.items() if n > 1 and asked != PROBE}
    assert not repeated
    assert providers.billed[PROBE] == num_probes


def test_no_answer_is_bought_again_when_an_outage_ends_between_two_requests(
    tmp_path, server, providers
):
    folder, refused = judged_folder(tmp_path / "judged", server.url), []

    def down_in_the_middle(body):
        # Two questions about the start, a program, and one of two questions about it are answered.
        if providers.billed.total() == 4 and len(refused) < 6:
            refused.append(body)
            return Refusal(503, "down")
        return providers.answer(body)

    server.default = down_in_the_middle
    found = run(folder, server, tmp_path / "run", max_iterations=2, **WAITS)
    assert (found.stop_reason, len(refused)) == ("iterations", 6)
    check_that_none_is_bought_twice(tmp_path / "run", providers, 1)


def test_a_program_for_which_alone_a_judge_never_answers_fails_and_buys_nothing_again(
    tmp_path, server, providers
):
    folder, refused = judged_folder(tmp_path / "judged", server.url), set()

    def down_for_one(body):
        asked = body["messages"][-1]["content"]
        if providers.billed.total() == 4 and not refused:
            refused.add(asked)
        return Refusal(429, "too large") if asked in refused else providers.answer(body)

    server.default = down_for_one
    found = run(folder, server, tmp_path / "run", max_iterations=2, **WAITS)
    assert found.stop_reason == "iterations"
    check_that_none_is_bought_twice(tmp_path / "run", providers, MAX_ALONE)


STREAMING = """
from httpx import HTTPError
from openai import APIError, OpenAI

CLIENT = OpenAI(max_retries=0)

def score(output):
    question = [{"role": "user", "content": f"Is it large? {output}"}]
    words = []
    try:
        for chunk in CLIENT.chat.completions.create(model="judge", messages=question, stream=True):
            words += [choice.delta.content or "" for choice in chunk.choices]
        return {"combined_score": output * float("".join(words))}
    except (APIError, HTTPError):
        return {"combined_score": 0.0}
"""


@pytest.mark.parametrize(
    "broken",
    [Reply("0.9 0.9", breaks_after=1), Reply("0.9 0.9", fails_after=1), Drip()],
    ids=["ended", "error", "endless"],
)
def test_a_stream_that_a_provider_breaks_pauses_the_run_and_is_asked_for_again(
    tmp_path, server, providers, broken
):
    folder = judged_folder(tmp_path / "judged", server.url, STREAMING)
    if isinstance(broken, Drip):  # of the judge alone: a late answer of it is asked for again
        with (folder / "problem.toml").open("a") as file:
            file.write("timeout = 2.0\n")
    times = Counter()

    def at_first_broken(body):
        asked = body["model"], body["messages"][-1]["content"]
        times[asked] += 1
        return broken if body["model"] != "writer" and times[asked] == 1 else providers.answer(body)

    server.default = at_first_broken
    waits = {"retry_wait": 0.01, "longest_wait": 0.02, "gateway": False}
    out = tmp_path / "run"
    found = run(folder, server, out, max_iterations=2, budget=1.0, **waits)
    assert found.iterations == 2
    _, steps = ledger_of(out)
    assert all(step["score"] for step in steps)


AGENT = """
def value():
    from openai import NotFoundError, OpenAI

    client = OpenAI(max_retries=0)
    said = client.chat.completions.create(
        model="agent", messages=[{"role": "user", "content": "What is a large number?"}]
    )
    try:
        client.chat.completions.create(model="judge", messages=[])
    except NotFoundError as error:
        print(error)
    # EVOLVE-BLOCK-START
    return 0.10 * float(said.choices[0].message.content)
    # EVOLVE-BLOCK-END
"""


def with_agent(folder, server, settings=""):
    """The folder of a problem whose programs ask a model of their own."""
    (folder / "initial_program.py").write_text(AGENT)
    price_in, price_out = PRICES["judge-small"]
    with (folder / "problem.toml").open("a") as file:
        file.write(
            f"[candidate_models.agent]\nmodel = 'openai:judge-small'\nbase_url = '{server.url}'\n"
            f"price = '{price_in},{price_out}'\nmax_tokens = 1000\n{settings}"
        )
    return folder


def test_programs_under_test_ask_their_models_and_not_the_judge(tmp_path, server, providers):
    folder = with_agent(judged_folder(tmp_path / "judged", server.url), server)
    out = tmp_path / "run"
    run(folder, server, out, max_iterations=1, timeout=60.0)
    calls, _ = ledger_of(out)
    by_role = {}
    for call in calls:
        by_role[call.role] = by_role.get(call.role, Decimal(0)) + call.cost
    assert by_role["candidate"] == providers.bill["judge-small"]
    assert by_role["evaluation"] == providers.bill["judge-large"]
    with RunStore(RunFolder(out).database) as store:
        seed = store.candidates.get(store.last_run(), "0.1")
    assert "got 'judge', expected one of 'agent'" in seed.artifacts["log"]


def test_programs_that_ask_models_need_an_allowance_under_a_hard_budget(tmp_path, server):
    folder = judged_folder(tmp_path / "judged", server.url)
    shared = judged_folder(tmp_path / "shared", server.url, evaluator=WITH_PATH)
    for each in (with_agent(folder, server), shared):
        with pytest.raises(ValueError, match=f"evaluation_dollars: got none for .*'{each.name}'"):
            run(each, server, tmp_path / "run", budget_policy="hard")
    assert not server.requests


LARGE = """
import os
from urllib.request import Request, urlopen
# EVOLVE-BLOCK-START
def value():
    body = b'{"model": "agent", "messages": [{"role": "user", "content": "%s"}]}' % (b"x" * 2**20)
    key = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    urlopen(Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, key))
    return 0.5
# EVOLVE-BLOCK-END
"""


def test_a_request_beyond_the_allowance_fails_its_program_and_no_hard_run(tmp_path, server):
    evaluator = "def score(output):\n    return {'combined_score': output}\n"
    settings = "evaluation_dollars = 0.01"
    folder = judged_folder(tmp_path / "judged", server.url, evaluator, settings=settings)
    with_agent(folder, server)
    (folder / "initial_program.py").write_text(SEED_PROGRAM)
    server.default = Reply(f"```python\n{LARGE}```")
    found = run(
        folder,
        server,
        tmp_path / "run",
        budget_policy="hard",
        budget=0.1,
        max_iterations=2,
        timeout=60.0,
    )
    assert (found.stop_reason, found.iterations) == ("iterations", 2)
    calls, steps = ledger_of(tmp_path / "run")
    assert {call.role for call in calls} <= {"generation", "retry"}
    assert all("left of evaluation_dollars" in step["failure"] for step in steps)


WITH_PATH = """
import runpy

from openai import OpenAI


def evaluate(program_path):
    value = runpy.run_path(program_path)["value"]()
    answer = OpenAI(max_retries=0).chat.completions.create(
        model="judge", messages=[{"role": "user", "content": f"Is it large? {value}"}]
    )
    return {"combined_score": value * float(answer.choices[0].message.content)}
"""


def test_an_evaluator_in_the_sandbox_asks_models(tmp_path, server, providers):
    folder = judged_folder(tmp_path / "judged", server.url, evaluator=WITH_PATH)
    out = tmp_path / "run"
    run(folder, server, out, max_iterations=2, timeout=60.0)
    calls, _ = ledger_of(out)
    judging = [call for call in calls if call.role == "evaluation"]
    assert sum(call.cost for call in judging) == providers.bill["judge-large"]
    assert {0, 1} <= {call.ticket for call in judging}


@pytest.mark.parametrize("compute_price", [None, 1.0])
def test_steps_at_once_share_a_hard_budget_with_their_judges(
    tmp_path, server, providers, compute_price
):
    folder = judged_folder(tmp_path / "judged", server.url, SEVERAL, settings="timeout = 20")
    out = tmp_path / "run"
    options = {"budget_policy": "hard", "parallel": 4, "gateway": False, "max_iterations": 40}
    found = run(folder, server, out, budget=0.12, compute_price=compute_price, **options)
    assert found.stop_reason == "budget"
    assert providers.total <= Decimal("0.12")
    assert found.spent <= 0.12
    calls, _ = ledger_of(out)
    assert sum(call.cost for call in calls if call.role != "compute") == providers.total
    assert not any(call.bound for call in calls)


SEVERAL = """
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

CLIENT = OpenAI(max_retries=0)


def grade(question):
    answer = CLIENT.chat.completions.create(
        model="judge", messages=[{"role": "user", "content": question}]
    )
    return float(answer.choices[0].message.content)


def score(output):
    with ThreadPoolExecutor(4) as threads:
        grades = threads.map(grade, [f"{number}: {output}" for number in range(4)])
    return {"combined_score": output * sum(grades) / 4}
"""
"""Asks four questions at once."""


@pytest.mark.parametrize("function", ["score", "evaluate"])
def test_a_problem_in_python_takes_a_chat_model(tmp_path, server, providers, function):
    judge = chat_model("openai:judge-large", base_url=server.url, retry_wait=0, max_tokens=1000)
    functions = {"score": graded, "evaluate": graded_program}
    problem = Problem(
        name="judged",
        task="Return a large number, at most 1.",
        initial_program=SEED_PROGRAM,
        entry_point="value",
        models={"judge": MenuModel("judge", judge, Price(*PRICES["judge-large"]))},
        **{function: functions[function]},
    )
    out = tmp_path / "run"
    run(problem, server, out, max_iterations=2)
    calls, _ = ledger_of(out)
    judging = [call for call in calls if call.role == "evaluation"]
    assert sum(call.cost for call in judging) == providers.bill["judge-large"]
    assert {call.ticket for call in judging} >= {0, 1}


def test_a_model_without_a_provider_judges_and_is_charged(tmp_path, server):
    folder = judged_folder(tmp_path / "judged", server.url, evaluator=LENGTH)
    settings = folder / "problem.toml"
    settings.write_text('entry_point = "value"\n[models]\njudge = "offline"\n')
    out = tmp_path / "run"
    run(folder, server, out, max_iterations=1)
    calls, _ = ledger_of(out)
    judging = [call for call in calls if call.role == "evaluation"]
    assert judging
    assert all(call.cost > 0 and call.model == "offline" for call in judging)


LENGTH = """
from openai import OpenAI

def score(output):
    answer = OpenAI(max_retries=0).chat.completions.create(
        model="judge", messages=[{"role": "user", "content": f"Say something on {output}."}]
    )
    said = answer.choices[0].message.content
    return {"combined_score": output * len(said) / (1 + len(said))}
"""


def test_a_run_is_not_resumed_with_another_judge(tmp_path, server, providers):
    folder = judged_folder(tmp_path / "judged", server.url)
    out = tmp_path / "run"
    run(folder, server, out, max_iterations=1)
    billed = providers.billed.total()
    settings = folder / "problem.toml"
    settings.write_text(settings.read_text().replace("judge-large", "judge-small"))
    expected = "models.judge.model was openai:judge-large, is openai:judge-small"
    with pytest.raises(ValueError, match=expected):
        run(folder, server, out, max_iterations=2, resume=True)
    assert providers.billed.total() == billed


PER_EXAMPLE = """
from openai import OpenAI

CLIENT = OpenAI(max_retries=0)


def score_example(output, example):
    question = f"{example['question']} {output}"
    answer = CLIENT.chat.completions.create(
        model="judge", messages=[{"role": "user", "content": question}]
    )
    return output * float(answer.choices[0].message.content)
"""


def test_the_examples_of_a_data_set_are_judged_on_the_ledger(tmp_path, server, providers):
    settings = 'examples = "train.jsonl"\nbatch = 2'
    folder = judged_folder(tmp_path / "judged", server.url, PER_EXAMPLE, settings=settings)
    examples = [{"question": f"Question {number}?", "inputs": {}} for number in range(4)]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, examples)))
    out = tmp_path / "run"
    run(folder, server, out, max_iterations=2, budget=1.0)
    calls, _ = ledger_of(out)
    judging = [call for call in calls if call.role == "evaluation"]
    assert sum(call.cost for call in judging) == providers.bill["judge-large"]
    assert sum(call.ticket == 0 for call in judging) == 4
