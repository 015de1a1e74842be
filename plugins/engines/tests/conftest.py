"""The fixtures of all tests, engines with a problem folder for them, and sweeps."""

import pytest
from engine_fixtures import *
from shared_fixtures import *
from sweep_fixtures import *

from costada.plugins.engines.local import LocalEngine


@pytest.fixture
def local_engine(cache):
    """Worker processes of this test alone."""
    engine = LocalEngine("local:2")
    yield engine
    engine.close()
