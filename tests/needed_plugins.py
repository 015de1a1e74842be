"""Plug-ins that some tests of the core use; those are skipped where a folder is missing."""

from importlib.util import find_spec
from typing import Any

import pytest

from costada.controller.methods import METHODS


def needs_plugin(*names: str) -> pytest.MarkDecorator:
    """Mark a test that is skipped where one of these plug-ins is missing."""
    missing = [name for name in names if find_spec(f"costada.plugins.{name}") is None]
    return pytest.mark.skipif(bool(missing), reason=f"plugins/{'/'.join(missing)} is missing")


def offline_model(**options: Any) -> Any:
    """The offline model; skips the test where its plug-in is missing."""
    return pytest.importorskip("costada.plugins.offline").OfflineModel(**options)


def strategy_reply(number: int) -> str:
    """A reply with one of the strategies of the offline model."""
    answers = pytest.importorskip("costada.plugins.offline.answers")
    strategy = answers.STRATEGIES[number % len(answers.STRATEGIES)]
    return f"```python\n{answers.strategy_text(strategy)}```"


EVOX = pytest.param("evox", marks=[needs_plugin("evox", "offline"), pytest.mark.process])
"""The method EvoX in a run, whose strategies are programs in the sandbox."""


def of_every_method() -> list[Any]:
    """The names of all methods, as parameters of a test that runs them."""
    return [EVOX if name == "evox" else name for name in sorted(METHODS)]
