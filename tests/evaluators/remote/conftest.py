"""Engines that several tests share, and a problem folder for them."""

from engine_fixtures import *
