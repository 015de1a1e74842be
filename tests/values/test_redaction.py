import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from costada.values.redaction import has_password, without_passwords

SECRET = "S3cr"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://u:S3cr@h/d", "postgresql://u@h/d"),
        ("got 'postgres://u:p@S3cr@h:1/d', expected", "got 'postgres://u@h:1/d', expected"),
        ("postgresql://u:p/S3cr@h/d#run", "postgresql://u@h/d#run"),
        ("postgresql://u:p#S3cr x@h/d", "postgresql://u@h/d"),
        ("postgres:/u:5432/S3cr@h/d", "postgres:/u@h/d"),
        ("a://b c://u:S3cr@h d://e@f/x@y", "a://b c://***@h d://***@f/x@y"),
        ("https://S3cr@h/v1", "https://***@h/v1"),
        ("https://h/v1?a=b&api_key=S3cr&c=d", "https://h/v1?a=b&api_key=***&c=d"),
        ("postgresql://h/d?password=S3cr", "postgresql://h/d?password=***"),
        ("postgresql://h/d?sslpassw%6fRd=S3cr", "postgresql://h/d?sslpassw%6fRd=***"),
        ("host=h password=S3cr&x#y dbname=d", "host=h password=*** dbname=d"),
        ("host=h PASSWORD = 'a S3cr' dbname=d", "host=h PASSWORD = *** dbname=d"),
        (r"password='it\'s S3cr' host=h", "password=*** host=h"),
        (r"password=a\ S3cr host=h", "password=*** host=h"),
        (
            "postgresql://u:p@S3cr@h/d?password=x@S3cr&sslpassword=z",
            "postgresql://u@h/d?password=***",
        ),
        ("postgresql://u@server:S3cr@h/d", "postgresql://u@server@h/d"),
        ("postgresql://us/er:S3cr@h/d", "postgresql://us/er@h/d"),
        ("postgresql://u:12,S3cr@h/d", "postgresql://u@h/d"),
        ("postgresql://u:a?password=S3cr@h/d", "postgresql://u@"),
        ("postgresql://u:p@h/d password='x@S3cr' a", "postgresql://u@h/d password=*** a"),
        ("https://u:p/S3cr@h/v1", "https://***@h/v1"),
        ("https://h/v1?key=a'S3cr, then", "https://h/v1?key=***, then"),
        ('password="a S3cr" host=h', "password=*** host=h"),
        (repr("a \"b\" password='S3cr S3cr'"), '\'a "b" password=***'),
    ],
)
def test_passwords_and_keys_are_left_out(text, expected):
    assert without_passwords(text) == expected
    assert SECRET not in expected
    assert has_password(text)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u@h:5432/d, expected postgresql://u@h:5432/e",
        "got postgresql://h:5432/d, expected postgresql://u@h/d",
        "got 'postgresql://h:5432/d' and 'postgresql://h:5432?host=/x', expected u@h",
        "postgresql://h:5432,k:5433/d, expected u@h",
        "http://127.0.0.1:8000/@me ssh://[::1]:22/@me",
        "http://127.0.0.1:8000/v1?a=b mailto:me@example.org",
        "postgresql://u@/d?host=/tmp/s#r: already holds a run: 'postgresql://u@/d?host=/tmp/s#r'",
        "the password is wrong; a key=value pair; --set price.token=3; see https://h/@me",
    ],
)
def test_texts_without_passwords_stay_as_they_are(text):
    assert without_passwords(text) == text
    assert not has_password(text)


PASSWORDS = st.text(st.sampled_from("ABC129@@:/?#&=%'\";,.+-_~!$()*[]\\|"), min_size=3, max_size=24)
"""Passwords that somebody has not encoded; none holds a blank, which ends an address."""

ADDRESSES = [
    "postgresql://u:{}@h/d",
    "got 'postgres://u:{}@h:5432/d?sslmode=require#run', expected a name",
    "postgresql:/u:{}@h/d?application_name=a",
    "postgresql://u@server:{}@h/d",
    "postgresql://h/d?user=u&password={}",
    "postgresql://u:p@h/d?sslpassword={} is gone",
    "postgresql://u:p@h/d?connect_timeout=3&password={}",
    "postgresql://u:p@h/d, then host=h sslpassword={}",
    "https://u:{}@h/v1",
]


def runs_of_three(text):
    return {text[start : start + 3] for start in range(len(text) - 2)}


@pytest.mark.parametrize("address", ADDRESSES)
@given(password=PASSWORDS)
def test_no_three_characters_of_a_password_are_printed(address, password):
    assume(not password[0].isdigit() or "https" not in address)  # may be a port and a path
    shown = without_passwords(address.format(password))
    frame = address.format("***")
    assert not (runs_of_three(password) - runs_of_three(frame)) & runs_of_three(shown)
    assert without_passwords(shown) == shown


@given(first=PASSWORDS, second=PASSWORDS)
def test_the_host_stays_where_a_parameter_holds_another_password(first, second):
    shown = without_passwords(f"postgresql://u:{first}@h/d?password={second}&sslpassword=zz")
    assert shown == "postgresql://u@h/d?password=***"
