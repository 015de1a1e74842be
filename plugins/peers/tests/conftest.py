"""The fixtures of all tests."""

from shared_fixtures import *
