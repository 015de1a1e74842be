"""All peers at once: the group that `--methods` takes."""

import pytest

from costada.controller.methods import METHODS
from costada.plugins.peers import GROUP, PEERS
from costada.runs.user_input import known_methods

NAMES = tuple(each.name for each in PEERS)


def test_the_group_stands_for_its_methods():
    assert set(METHODS.groups[GROUP]) == set(NAMES)
    found = known_methods("--methods", "costada,peers")
    assert found[0] == "costada"
    assert set(found[1:]) == set(NAMES)
    assert known_methods("--methods", "all") == tuple(METHODS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("peers,gepa", "got 'peers,gepa', expected different methods"),
        ("all,peers", "got 'all,peers', expected different methods"),
        ("costada,costada", "expected different methods"),
        ("peer", "Unknown method 'peer'. Did you mean 'peers'"),
        ("peerz,costada", "Known: adaevolve, all, .*, openevolve, peers, "),
        ("", "expected one or more"),
    ],
)
def test_a_wrong_list_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        known_methods("--methods", text)
