"""EvoX is found by its entry point, and refused in a sentence where its folder is missing."""

import pytest
from pydantic import ValidationError

from costada.controller.methods import ENTRY_POINTS, METHODS
from costada.nodes.settings import Settings
from costada.plugins.evox import METHOD
from costada.values import plugins


@pytest.fixture
def without_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry point of EvoX names a package that does not exist."""

    class Moved(plugins.EntryPoint):
        module = "costada.plugins.taken_away"

    known = plugins._all_entry_points(())
    moved = [Moved(each.name, each.value, each.group) for each in known.select(group=ENTRY_POINTS)]
    monkeypatch.setattr(plugins, "_all_entry_points", lambda path: plugins_of(moved))
    forget_plugins()
    yield
    monkeypatch.undo()
    forget_plugins()


def forget_plugins():
    plugins._registered.cache_clear()
    plugins._entry_points_of.cache_clear()


def plugins_of(entries):
    from importlib.metadata import EntryPoints

    return EntryPoints(entries)


def test_the_entry_point_is_a_method() -> None:
    assert METHODS["evox"] is METHOD
    assert "evox" in [*METHODS]


def test_a_method_whose_folder_is_missing_is_refused_by_name(without_folder: None) -> None:
    assert "evox" not in plugins.plugins_of(ENTRY_POINTS)
    with pytest.raises(ValidationError, match="method evox is not installed"):
        Settings(method="evox")
    assert Settings(method="adaevolve").method == "adaevolve"
