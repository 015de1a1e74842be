"""The fixtures of runs whose evaluators ask models."""

from judge_fixtures import *
