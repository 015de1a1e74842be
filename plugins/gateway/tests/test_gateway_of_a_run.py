"""Starting, finding and stopping the gateway of a run."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic, sleep

import pytest
from billing_server import BillingServer, Reply
from fakes import toy_problem
from langchain_core.language_models import FakeListChatModel
from langchain_core.runnables import ConfigurableField
from langchain_openai import ChatOpenAI
from menu_provider import answer
from pydantic import SecretStr
from toy_graph import calls_of
from waiting import within

from costada.controller.constants import Constants
from costada.models.asking import has_gateway, with_call_key
from costada.models.chat_models import chat_model
from costada.models.menu import MenuModel
from costada.nodes.settings import Settings
from costada.plugins.gateway.gateway_of_run import (
    check_models,
    gateway_journal,
    gateway_log,
    stop_gateways,
)
from costada.plugins.gateway.gateway_protocol import address_file, is_held, read_address
from costada.plugins.gateway.response_journal import Journal
from costada.runs.folder import RunFolder
from costada.runs.gateways import gateway_choice, uses_gateway
from costada.runs.plan import Plan
from costada.runs.runner import gateway_of
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore
from costada.values.usage import Price

pytestmark = pytest.mark.process

KEY = "run/1/generation/1"
PATIENCE = 60.0
COMMAND = (
    "import typer; from costada.plugins.gateway.gateway_command import gateway; typer.run(gateway)"
)


@pytest.fixture
def server():
    with BillingServer() as running:
        yield running


@pytest.fixture
def folder(tmp_path):
    place = RunFolder(tmp_path)
    yield place
    stop_gateways(place)


@pytest.fixture
def plan(server):
    problem = toy_problem()
    return Plan(
        problem=problem,
        seed_evaluation=problem.evaluate(problem.initial_program),
        sandbox=None,
        model=chat_model("openai:stand-in", base_url=server.url, retry_wait=0),
        guide_model=None,
        budget=1.0,
        settings=Settings(),
        title="a run",
        gateway=True,
    )


def file_of(folder):
    return address_file(gateway_journal(folder))


def address_of(folder):
    address = read_address(file_of(folder))
    assert address is not None
    return address


def successor(folder, before):
    """The gateway of a folder if it is another one than before."""
    found = read_address(file_of(folder))
    return found if found != before else None


def wait_for_end(folder):
    deadline = monotonic() + PATIENCE
    while is_held(address_file(gateway_journal(folder))):
        assert monotonic() < deadline
        sleep(0.005)


def ask(plan):
    return str(with_call_key(plan.model, KEY).invoke("hi").content)


def test_the_gateway_of_a_killed_run_is_found_again_and_a_dead_one_replaced_on_its_journal(
    plan, folder, server
):
    with gateway_of(plan, folder) as first:
        ask(first)
        address = address_of(folder)
    with gateway_of(plan, folder) as second:
        assert ask(second) == "hello"
        assert address_of(folder) == address
    os.kill(address.pid, signal.SIGKILL)
    wait_for_end(folder)
    with gateway_of(plan, folder) as third:
        assert ask(third) == "hello"
        assert address_of(folder).pid != address.pid
    assert len(server.bill) == 1


def test_gateways_that_die_during_their_runs_are_started_again(plan, folders, server):
    with gateway_of(plan, folders[0]) as first, gateway_of(plan, folders[1]) as second:
        assert ask(first) == "hello"
        addresses = [address_of(each) for each in folders]
        os.kill(addresses[0].pid, signal.SIGKILL)
        for each, before in zip(folders, addresses, strict=True):
            again = within(PATIENCE, partial(successor, each, before))
            assert (again.port, again.token) == (before.port, before.token)
        assert ask(first) == ask(second) == "hello"
    assert len(server.bill) == 2  # the first one was asked for before


def test_a_run_resumed_with_another_server_gets_another_gateway(plan, folder):
    with gateway_of(plan, folder):
        address = address_of(folder)
    with BillingServer() as other:
        model = chat_model("openai:stand-in", base_url=other.url)
        with gateway_of(replace(plan, model=model), folder):
            assert address_of(folder).upstream == other.url
    assert address_of(folder) != address


@pytest.fixture
def folders(tmp_path):
    places = [RunFolder(tmp_path / name) for name in ("first", "second")]
    for each in places:
        each.path.mkdir()
    yield places
    for each in places:
        stop_gateways(each)


def test_the_runs_of_one_process_have_their_gateways_in_one_process(plan, folders, server):
    with gateway_of(plan, folders[0]) as first, gateway_of(plan, folders[1]) as second:
        addresses = [address_of(each) for each in folders]
        assert len({each.pid for each in addresses}) == 1
        assert len({each.token for each in addresses}) == 2
        assert ask(first) == ask(second) == "hello"
        stop_gateways(folders[0])
        assert not is_held(address_file(gateway_journal(folders[0])))
        assert ask(second) == "hello"
    assert len(server.bill) == 2  # each has a journal of its own


def test_a_gateway_that_cannot_start_leaves_the_others_of_its_process(plan, folders):
    with gateway_of(plan, folders[0]) as first:
        gateway_journal(folders[1]).write_text("no database" * 100)
        with (
            pytest.raises(ValueError, match=r"cannot be started: .* is not a database"),
            gateway_of(plan, folders[1]),
        ):
            pass
        assert ask(first) == "hello"


def test_a_forked_process_has_gateways_of_its_own(plan, folders):
    with gateway_of(plan, folders[0]):
        address = address_of(folders[0])
        child = os.fork()
        if not child:
            with gateway_of(plan, folders[1]) as own:
                os._exit(0 if ask(own) == "hello" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert address_of(folders[1]).pid != address.pid


def test_gateways_outlive_the_process_that_started_them(plan, folders, server):
    """A process that starts two and is killed; their process ends when both were stopped."""
    child = os.fork()
    if not child:
        for each in folders:
            gateway_of(plan, each).__enter__()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    address = address_of(folders[0])
    for each in folders:
        with gateway_of(plan, each) as again:
            assert ask(again) == "hello"
            assert address_of(each).pid == address.pid
        stop_gateways(each)
    deadline = monotonic() + PATIENCE
    while Path(f"/proc/{address.pid}").exists():
        assert monotonic() < deadline
        sleep(0.005)


def test_a_stopped_gateway_leaves_its_journal_and_log(plan, folder):
    with gateway_of(plan, folder):
        stop_gateways(folder)
    assert not is_held(address_file(gateway_journal(folder)))
    assert {path.name for path in folder.path.iterdir()} == {"gateway.sqlite", "gateway.log"}
    assert gateway_log(folder).read_text() == "costada gateway: asked to stop\n"


def test_stopping_where_no_gateway_is_changes_nothing(folder):
    stop_gateways(folder)
    assert list(folder.path.iterdir()) == []


def test_a_guide_model_goes_through_the_same_gateway_unless_it_is_of_another_kind(
    plan, folder, server
):
    guide = chat_model("openai:guide", base_url=server.url)
    with gateway_of(replace(plan, guide_model=guide), folder) as journaled:
        assert journaled.guide_model is not None
        assert has_gateway(journaled.model)
        assert has_gateway(journaled.guide_model)
    other = FakeListChatModel(responses=["idea"])
    with gateway_of(replace(plan, guide_model=other), folder) as journaled:
        assert has_gateway(journaled.model)
        assert journaled.guide_model is other


def test_a_run_without_a_model_for_it_is_refused(plan):
    models = [FakeListChatModel(responses=["idea"]), *plan.models[1:]]
    with pytest.raises(ValueError, match=r"call no OpenAI-compatible server, expected one"):
        check_models(models)


def test_each_server_that_a_run_calls_has_a_gateway_of_its_own(plan, folder, server):
    def entry(name, url):
        return MenuModel(name, chat_model(f"openai:{name}", base_url=url, retry_wait=0))

    with BillingServer() as other:
        menu = (entry("first", server.url), entry("second", other.url), entry("third", server.url))
        several = replace(plan, menu=menu, model=menu[0].model, guide_model=menu[1].model)
        check_models(several.models, several.menu)
        for _ in range(2):  # what the gateways have kept is not asked for again
            with gateway_of(several, folder) as journaled:
                assert all(has_gateway(each.model) for each in journaled.menu)
                assert journaled.model is journaled.menu[0].model
                assert journaled.guide_model is journaled.menu[1].model
                for number, each in enumerate(journaled.menu):
                    key = f"run/1/generation/{number}"
                    assert with_call_key(each.model, key).invoke("hi").content == "hello"
        assert [bill.model for bill in server.bill] == ["first", "third"]
        assert [bill.model for bill in other.bill] == ["second"]
        addresses = [read_address(address_file(gateway_journal(folder, n))) for n in (1, 2)]
        assert [address and address.upstream for address in addresses] == [server.url, other.url]
        stop_gateways(folder)
        held = [is_held(address_file(gateway_journal(folder, number))) for number in (1, 2)]
        assert held == [False, False]


def test_a_model_that_makes_the_attempt_of_another_gets_its_own_answer(plan, folder, server):
    """Three answers without text put the first aside; they are billed, and stay on the ledger."""

    def reply(body):
        return Reply("", 10, 20) if body["model"] == "mute" else answer(body)

    server.default = reply
    price = Price(1, 1)
    menu = tuple(
        MenuModel(name, chat_model(f"openai:{name}", base_url=server.url, retry_wait=0), price)
        for name in ("mute", "good")
    )
    settings = Settings(constants=Constants(max_iterations=6), method="uniform")
    several = replace(plan, menu=menu, model=menu[0].model, router="round-robin", settings=settings)
    with gateway_of(several, folder) as journaled:
        journaled.graph(store=(store := RunStore())).invoke({})
    calls = calls_of(store)
    assert {call.status for call in calls} == {CallStatus.DONE}
    ledger, bill = Counter(), Counter()
    for call in calls:
        ledger[call.entry] += call.cost * 1_000_000
    for each in server.bill:
        bill[each.model] += each.input_tokens + each.output_tokens
    assert ledger == bill
    assert bill["mute"] == 3 * 30


def test_a_gateway_waits_as_long_as_the_slowest_model_may_take(plan):
    patient = MenuModel("patient", plan.model, timeout=900)
    menu = (MenuModel("usual", plan.model), patient)
    assert replace(plan, menu=menu).call_timeout == 900
    assert plan.call_timeout == plan.settings.retry_policy.call_timeout


def test_a_menu_of_which_a_part_would_pass_the_gateway_by_is_refused(plan):
    other = MenuModel("other", FakeListChatModel(responses=["idea"]))
    mixed = replace(plan, menu=(MenuModel("own", plan.model), other))
    with pytest.raises(ValueError, match="gateway: other calls no OpenAI-compatible server"):
        check_models(mixed.models, mixed.menu)
    notice = gateway_choice(None, 8, mixed.models, mixed.menu).notice
    assert "other calls no OpenAI-compatible server" in notice
    offline = MenuModel("free", chat_model("offline"))
    check_models(plan.models, (MenuModel("own", plan.model), offline))


def test_several_calls_at_once_turn_the_gateway_on_and_say_so(plan):
    assert gateway_choice(None, 1, plan.models) == (None, "")
    is_used, notice = gateway_choice(None, 8, plan.models)
    assert is_used
    assert notice.startswith("With a gateway, as up to 8 calls are in flight")


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("parallel", [1, 8])
def test_the_user_decides_about_the_gateway(plan, wanted, parallel):
    assert gateway_choice(wanted, parallel, plan.models) == (wanted, "")


def test_models_without_a_provider_need_no_gateway():
    assert gateway_choice(None, 8, [chat_model("offline")]) == (None, "")


def test_several_calls_at_once_without_a_gateway_say_why(plan, monkeypatch):
    stranger = FakeListChatModel(responses=["idea"])
    chosen = plan.model.bound.configurable_fields(model_name=ConfigurableField(id="llm"))
    reasons = {
        "call no OpenAI-compatible server": [stranger],
        "in which requests would bypass the gateway": [chosen],
    }
    for reason, models in reasons.items():
        is_used, notice = gateway_choice(None, 8, models)
        assert is_used is None
        assert re.search(f"the answers of up to 8 calls are lost .*{reason}", notice)
    monkeypatch.setattr("costada.plugins.gateway.gateway_of_run.find_spec", lambda name: None)
    assert 'run `pip install "costada[gateway]"`' in gateway_choice(None, 8, plan.models).notice


def test_a_run_that_used_a_gateway_before_uses_it_again_unless_its_user_says_no(plan, folder):
    unset = replace(plan, gateway=None)
    with gateway_of(unset, folder) as direct:
        assert direct is unset
    with gateway_of(plan, folder) as first:
        assert ask(first) == "hello"
    with gateway_of(unset, folder) as again:
        assert has_gateway(again.model)
        assert again.gateway
    assert [uses_gateway(wanted, folder) for wanted in (None, True, False)] == [True, True, False]


def test_a_run_whose_answers_are_gone_is_refused(plan, folder):
    gateway_log(folder).touch()
    with (
        pytest.raises(ValueError, match=r"gateway.sqlite: missing, expected the responses"),
        gateway_of(plan, folder),
    ):
        pass


def test_a_gateway_that_cannot_start_says_why(plan, folder):
    gateway_journal(folder).write_text("no database" * 100)
    with (
        pytest.raises(ValueError, match=r"gateway.sqlite: file is not a database, expected"),
        gateway_of(plan, folder),
    ):
        pass


def test_the_command_prints_its_address_and_ends_on_a_signal(folder, server):
    words = ["--upstream", server.url, "--journal", str(gateway_journal(folder))]
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == address_of(folder).base_url
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert (process.returncode, errors) == (0, "costada gateway: asked to stop\n")
    Journal(gateway_journal(folder)).close()


def test_the_command_refuses_an_upstream_that_is_no_address(folder, invoke):
    words = ("--upstream", "provider", "--journal", gateway_journal(folder))
    refused = invoke("gateway", *words)
    assert refused.exit_code == 2
    assert "costada: upstream: got 'provider', expected an address" in refused.stderr


def test_a_model_that_is_bound_to_another_name_goes_through_the_gateway(plan, folder, server):
    bound = plan.model.bind(model="dear")
    with gateway_of(replace(plan, model=bound), folder) as journaled:
        assert ask(journaled) == ask(journaled) == "hello"
    assert [entry.model for entry in server.bill] == ["dear"]


def test_a_model_whose_requests_would_pass_the_gateway_by_is_refused(plan, folder, server):
    model = ChatOpenAI(model="stand-in", base_url=server.url, api_key=SecretStr("none"))
    chosen = model.configurable_fields(model_name=ConfigurableField(id="llm"))
    with (
        pytest.raises(ValueError, match="in which requests would bypass the gateway"),
        gateway_of(replace(plan, model=chosen), folder),
    ):
        pass


def test_a_run_that_wants_a_gateway_is_refused_without_the_plugin(plan, folder, leave_out):
    leave_out("gateway")
    for begin in (
        lambda: gateway_choice(True, 1, plan.models),
        lambda: gateway_of(replace(plan, gateway=True), folder).__enter__(),
    ):
        with pytest.raises(ValueError, match=r"^gateway: no gateway is installed; expected"):
            begin()
    notice = gateway_choice(None, 8, plan.models).notice
    assert notice.endswith("are lost (gateway: no gateway is installed; expected the plug-in)")


def test_a_gateway_loads_no_library_of_models():
    """They cost three quarters of its start and half of its memory."""
    loaded = "sorted({'langchain_core', 'openai', 'pydantic'} & set(sys.modules))"
    code = f"import sys; import costada.plugins.gateway.gateway_process; print({loaded})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
