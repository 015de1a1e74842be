"""A server and a gateway in front of it."""

from gateway_fixtures import *
