"""A package registers a router by an entry point, and any run can choose it."""

from pathlib import Path
from random import Random

import pytest

from costada.controller.arms import ModelOption, Money
from costada.controller.router import ROUTERS, start_router

MODULE = """
from dataclasses import dataclass

from costada.controller.router import Router


@dataclass(frozen=True, slots=True)
class LastFirst(Router):
    def pick(self, arms, money, attempt, rng):
        return arms[-1]


class Unrelated:
    pass
"""

ENTRIES = """[costada.routers]
last = foreign_router:LastFirst
unrelated = foreign_router:Unrelated
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package on the path of modules, as an installer leaves it."""
    (tmp_path / "foreign_router.py").write_text(MODULE)
    facts = tmp_path / "foreign-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_a_registered_router_chooses_among_the_models_that_can_be_paid_for() -> None:
    assert "last" in ROUTERS
    router = start_router("last", ["a", "b", "c"])
    prices = {"c": 9.0, "a": 1.0, "b": 2.0}
    options = [ModelOption(name, price) for name, price in prices.items()]
    assert router.choose(options, Money(100.0, 100.0), 1, Random(0)) == "c"
    assert router.choose(options, Money(100.0, 5.0), 1, Random(0)) == "b"
    after = router.tell("b", 0.7, 0.5, 2.0, has_reference=True)
    assert type(after) is type(router)
    assert after.records[1].tries == 1


@pytest.mark.usefixtures("installed")
def test_a_class_that_is_not_a_router_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unrelated: .* is the class Unrelated, expected"):
        start_router("unrelated", ["a", "b"])


def test_a_router_that_nobody_registered_is_unknown() -> None:
    assert "last" not in ROUTERS
    with pytest.raises(KeyError):
        ROUTERS["last"]
