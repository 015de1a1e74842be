"""Stands in for Docker where there is none: really runs what it is told to, in bubblewrap.

Knows only what the sandbox asks of an engine. Containers that run are files in the folder named by
FAKE_ENGINE_FOLDER; each holds the number of its process.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

FOLDER = Path(os.environ["FAKE_ENGINE_FOLDER"])
FLAGS = ("--rm", "--read-only")


def run(words):
    options, rest = parsed(words)
    name = options["--name"][0]
    command = [*bubblewrap(options), *rest[1:]]
    asked = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    (FOLDER / name).write_text(str(asked.pid))
    status = asked.wait()
    (FOLDER / name).unlink(missing_ok=True)
    return status


def parsed(words):
    options = {}
    while words[0].startswith("--"):
        name = words.pop(0)
        options.setdefault(name, []).append("" if name in FLAGS else words.pop(0))
    return options, words


def bubblewrap(options):
    command = [shutil.which("bwrap"), "--unshare-all", "--cap-drop", "ALL"]
    for mount in options["--mount"]:
        parts = dict(part.partition("=")[::2] for part in mount.split(","))
        assert (parts["type"], parts["readonly"]) == ("bind", "")
        command += ["--ro-bind", parts["source"], parts["target"]]
    for place in options["--tmpfs"]:
        command += ["--tmpfs", place.partition(":")[0]]
    for pair in options["--env"]:
        command += ["--setenv", *pair.split("=", 1)]
    return [*command, "--proc", "/proc", "--dev", "/dev", "--chdir", *options["--workdir"]]


def remove(name):
    path = FOLDER / name
    if path.exists():
        os.killpg(int(path.read_text()), signal.SIGKILL)
        path.unlink(missing_ok=True)


def main():
    with (FOLDER / "log.jsonl").open("a") as log:
        log.write(json.dumps(sys.argv[1:]) + "\n")
    match sys.argv[1:]:
        case ["info", *_]:
            print(os.uname().release, "[name=seccomp,profile=builtin]")
        case ["image", "inspect", _]:
            return 0 if (FOLDER / "image").exists() else 1
        case ["import", "-", _]:
            (FOLDER / "image").write_bytes(sys.stdin.buffer.read())
        case ["run", *words]:
            return run(words)
        case ["rm", "--force", name]:
            remove(name)
        case words:
            raise SystemExit(f"not known to this engine: {words}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
