import pytest

from costada.models.errors import describe


def test_a_description_names_class_and_message_on_one_line() -> None:
    assert describe(ValueError("bad\n  thing")) == "ValueError: bad thing"


def test_an_error_without_message_is_said_to_have_none() -> None:
    assert describe(TimeoutError()) == "TimeoutError: no message"


def test_a_long_message_is_cut() -> None:
    assert len(describe(ValueError("x" * 10_000))) == 500


def test_a_key_from_the_environment_is_replaced_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    text = describe(ValueError("wrong key sk-very-secret given"))
    assert text == "ValueError: wrong key <SOME_API_KEY> given"


def test_a_key_is_replaced_before_a_long_message_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    assert "sk-" not in describe(ValueError("x" * 480 + "sk-very-secret"))
