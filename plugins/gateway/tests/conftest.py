"""The fixtures of all tests, and of those that call a gateway."""

from gateway_fixtures import *
from shared_fixtures import *
