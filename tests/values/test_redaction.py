import pytest

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
        "http://127.0.0.1:8000/v1?a=b mailto:me@example.org",
        "the password is wrong; a key=value pair; --set price.token=3; see https://h/@me",
    ],
)
def test_texts_without_passwords_stay_as_they_are(text):
    assert without_passwords(text) == text
    assert not has_password(text)
