"""A package registers a method by an entry point, and any command knows it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from costada.controller.baselines.uniform import Uniform
from costada.controller.methods import METHODS
from costada.nodes.settings import Settings

MODULE = """
from costada.controller.baselines.uniform import Uniform
from costada.controller.methods import Method


class Foreign(Uniform):
    pass


METHOD = Method("foreign", Foreign, "as uniform", {})
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package on the path of modules, as an installer leaves it."""
    (tmp_path / "foreign_method.py").write_text(MODULE)
    facts = tmp_path / "foreign-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[costada.methods]\nforeign = foreign_method:METHOD\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    METHODS._loaded.pop("foreign", None)


def test_a_registered_method_is_known_and_loaded_when_it_is_used(installed: None) -> None:
    assert "foreign" in METHODS
    assert "foreign" in list(METHODS)
    assert Settings(method="foreign").method == "foreign"
    assert isinstance(METHODS["foreign"].start(0.5, Settings().constants), Uniform)


def test_a_method_that_nobody_registered_is_unknown() -> None:
    assert "foreign" not in METHODS
    with pytest.raises(KeyError):
        METHODS["foreign"]
