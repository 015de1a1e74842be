"""The fixtures of all tests, and what CI prints at their end."""

import os
from collections import defaultdict
from pathlib import PurePath
from typing import Any

import pytest
from shared_fixtures import *


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """In CI, print the seconds of each folder, summed over the workers."""
    if "CI" not in os.environ:
        return
    seconds = defaultdict[str, float](float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[str(PurePath(report.location[0]).parent)] += report.duration
    terminalreporter.section("seconds by folder")
    for folder, spent in sorted(seconds.items()):
        terminalreporter.write_line(f"{spent:8.1f}  {folder}")
