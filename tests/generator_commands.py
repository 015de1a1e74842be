"""Commands as generators: Python programs that stand in for coding agents."""

import shlex
import sys
from pathlib import Path


def python_command(code: str, *words: str) -> str:
    """The text of a command that executes Python code, with further words as its arguments.

    Braces in the code stand for themselves.
    """
    code = code.replace("{", "{{").replace("}", "}}")
    return f"{shlex.join([sys.executable, '-c', code])} {' '.join(words)}".rstrip()


EDIT = """
import sys
from pathlib import Path
file = Path(sys.argv[2])
file.write_text(file.read_text().replace("0.10", sys.argv[1]))
print("edited", file)
"""


def editing(value: float) -> str:
    """A command that sets the value of the toy problem, whose parent is the initial program."""
    return python_command(EDIT, f"{value}", "{files}")


AGENT = Path(__file__).with_name("asking_agent.py")


def asking(turns: int = 1, model: str = "{model}") -> str:
    """A command that asks a model, and takes its program: see `asking_agent`."""
    words = shlex.join([sys.executable, str(AGENT)])
    return f"{words} {{prompt}} {model} {turns} {{files}}"


FIRST = """
import sys
from pathlib import Path
seen, file = Path({seen!r}), Path("candidate.py")
number = len(list(seen.iterdir())) + 1
(seen / f"{{number}}.md").write_text(sys.stdin.read())
if number == 1:
    exec({code!r})
else:
    file.write_text(file.read_text().replace("0.10", "0.4"))
"""


def first_doing(code: str, seen: Path) -> str:
    """A command that executes code the first time, and sets the value 0.4 every other time.

    The prompts that it gets are files of a folder, `1.md` and so on.
    """
    return python_command(FIRST.format(seen=str(seen), code=code))
