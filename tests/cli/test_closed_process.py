import sys
from subprocess import run

import pytest

PROGRAM = """
import sys
from ctypes import CDLL
from costada.cli.entry import main
sys.modules["costada.cli.main"] = None
sys.argv[1:] = ["run", "circle_packing", "--quiet"]
try:
    main()
except ImportError:
    print(CDLL(None).prctl(3, 0, 0, 0, 0))
"""
"""A command that cannot load its libraries; it prints whether others may read its environment."""


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_DUMPABLE is Linux's")
def test_a_command_is_closed_to_others_before_its_libraries_load():
    assert run([sys.executable, "-c", PROGRAM], capture_output=True, check=True).stdout == b"0\n"
