"""What a row of a run file holds as JSON."""

import pytest

from costada.store.rows import parse_json


def test_half_a_surrogate_pair_is_read_as_it_is_or_escaped():
    assert parse_json('"\ud800"') == parse_json(r'"\ud800"') == "\ud800"


@pytest.mark.parametrize("value", [b"1", bytearray(b"1"), None, 5, '"\ud800', "[1", "[" * 100_000])
def test_what_is_no_text_in_json_is_refused(value):
    with pytest.raises(ValueError, match=r"is not valid JSON|Expecting|Unterminated"):
        parse_json(value)
