"""`costada check` and `costada evaluate` of problems that ask models: once, and with a bill."""

import re
from decimal import Decimal

import pytest
from billing_server import BillingServer
from judged_problems import Providers, judged_folder

pytestmark = pytest.mark.process


@pytest.fixture
def providers():
    return Providers()


@pytest.fixture
def folder(tmp_path, providers, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-key-of-the-user")
    with BillingServer(default=providers.answer) as server:
        yield judged_folder(tmp_path / "judged", server.url)


def test_a_check_asks_once_and_prints_what_that_cost(folder, providers, invoke):
    result = invoke("check", folder)
    assert (result.exit_code, result.stderr) == (0, "")
    (cost,) = re.findall(r"models +judge-large \$([\d.]+)", result.stdout)
    assert Decimal(cost) == round(providers.total, 6)
    assert providers.billed.total() == 2


def test_an_evaluation_prints_what_it_cost(folder, providers, invoke):
    result = invoke("evaluate", folder, folder / "initial_program.py")
    assert result.exit_code == 0
    assert "valid      yes" in result.stdout
    assert result.stderr == f"costada: models: judge-large ${providers.total:.6f}\n"


def test_a_check_without_a_key_is_refused_before_anything_is_sent(
    folder, providers, invoke, monkeypatch
):
    settings = folder / "problem.toml"
    text = settings.read_text()
    settings.write_text("\n".join(each for each in text.splitlines() if "base_url" not in each))
    monkeypatch.delenv("OPENAI_API_KEY")
    result = invoke("check", folder)
    assert result.exit_code == 2
    assert "problem.toml, [models.judge]: " in result.stderr
    assert "OPENAI_API_KEY" in result.stderr
    assert not providers.billed
