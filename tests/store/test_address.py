"""Addresses of databases, and the passwords in them."""

import pytest

from costada.store.address import shown_address, without_password

pytest.importorskip("psycopg")


@pytest.mark.parametrize(
    ("address", "bare", "password"),
    [
        ("postgresql://ann:pw@host:5433/data", "postgresql://ann@host:5433/data", "pw"),
        ("postgresql://ann:p%40w@host/data", "postgresql://ann@host/data", "p@w"),
        (
            "postgresql://host/data?password=pw&sslmode=require",
            "postgresql://host/data?sslmode=require",
            "pw",
        ),
        ("postgresql://ann@host/data", "postgresql://ann@host/data", ""),
    ],
)
def test_a_password_is_taken_out_of_an_address(address, bare, password):
    assert without_password(address) == (bare, password)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("postgresql://ann@host/data?sslkey=k&sslpassword=hidden", "sslpassword cannot be taken"),
        ("postgresql://ann@host/data?ssl%70assword=hidden", "sslpassword cannot be taken out"),
        ("postgresql://ann@host/data?pass%77ord=hidden", "its password cannot be taken out"),
    ],
)
def test_a_password_that_cannot_be_taken_out_is_refused_and_not_repeated(address, message):
    with pytest.raises(ValueError, match=message) as raised:
        without_password(address)
    assert "hidden" not in str(raised.value)


def test_messages_show_an_address_without_password_and_options():
    address = "postgresql://ann:hidden@host:5433/data?sslmode=require&sslpassword=hidden"
    assert shown_address(address) == "postgresql://ann@host:5433/data"
