"""Runs a command and prints in which functions the Pythons that it starts have spent their time.

A program of its own, run in the sandbox by `python -c`: its arguments are the text of
`profile_hook.py`, and the words of the command. The last line that it prints is JSON: seconds by
`path:line` of each function below the working folder.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

MAX_FUNCTIONS = 150
FOLDER = "COSTADA_PROFILE"
SITE = "sitecustomize.py"


def main() -> None:
    """Run the command of the arguments; exits as it does if it fails."""
    hook, words = sys.argv[1], sys.argv[2:]
    folder = tempfile.mkdtemp()
    Path(folder, SITE).write_text(hook)
    paths = [folder, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, FOLDER: folder, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if words[0] == "python":
        words[0] = sys.executable
    done = subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        sys.exit(done.returncode if done.returncode > 0 else 128 - done.returncode)
    seconds: Counter[str] = Counter()
    for path in Path(folder).glob("*.json"):
        seconds.update(json.loads(path.read_text()))
    report = {"combined_score": 1.0, **dict(seconds.most_common(MAX_FUNCTIONS))}
    sys.stdout.write(f"{json.dumps(report)}\n")


if __name__ == "__main__":
    main()
