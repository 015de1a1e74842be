"""What the evaluator of a folder needs beyond its confinement, and that the user has confirmed it.

A folder may come from somebody else, so it declares what it needs and opens nothing by that. The
user confirms a declaration once, for the content of the evaluator's files as it is then. That is
kept with the user's data and never in the folder, which could confirm itself otherwise.
"""

import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from glob import glob
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from costada.evaluators.candidate_imports import may_import_candidate, may_load_candidate
from costada.evaluators.environment import environment_folder, user_place
from costada.evaluators.folder_files import EvaluatorFile, content_hash, sources_in
from costada.evaluators.import_paths import imported_modules
from costada.evaluators.sandbox.layers import UNCONFINED, Layer
from costada.evaluators.sandbox.opened import (
    DOCKER_HOST,
    ENGINE_SOCKETS,
    NVIDIA,
    Opened,
    assigned_gpus,
    engine_socket,
    gpus_here,
)
from costada.values.path_words import path_word

CONSENTS = "consents"
PRIVATE_PLACES = ("~", "/root", "/home", "/etc", "/run", "/var")
"""Where files are private to a user or a service, beside those that others may not read."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What an evaluator declares in `problem.toml`.

    Attributes:
        network: Hosts that it asks.
        keys: Names of the environment variables that it is given.
        gpus: How many GPUs it has; a fraction of one to share it.
        gpu_driver: Whose device nodes these are.
        docker: Whether it starts containers.
        readable: What it and its candidates read outside of its folder; that is confirmed where it
            is private, and with something else.
    """

    network: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    gpus: float = 0.0
    gpu_driver: str = NVIDIA
    docker: bool = False
    readable: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is to be confirmed."""
        return self.are_of_evaluator or bool(self.private)

    @property
    def are_of_evaluator(self) -> bool:
        """Whether anything is opened to the evaluator that is not to its candidates."""
        return bool(self.network or self.keys or self.gpus or self.docker)

    @property
    def private(self) -> tuple[str, ...]:
        """Those of the `readable` paths that lead to what may be private."""
        return tuple(
            pattern
            for pattern in self.readable
            if any(map(_is_private, glob(os.path.expanduser(pattern))))
        )

    def described(self) -> list[str]:
        """What exactly is opened to the evaluator, a sentence for each."""
        lines = []
        if self.network:
            lines.append(
                f"the network, for {', '.join(self.network)}; every other address can be reached"
                " too, services of this machine and its network included"
            )
        if self.keys:
            lines.append(f"the values of {', '.join(self.keys)}")
        if self.gpus:
            num = f"{self.gpus:g} GPUs" if self.gpus > 1 else "a GPU"
            lines.append(
                f"{num}, by its device nodes ({self.gpu_driver}) and the driver behind them"
            )
        if self.docker:
            lines.append(
                "the socket of the container engine, which equals root on this machine: whoever"
                " has it reads and changes every file"
            )
        private = self.private
        if private:
            lines.append(f"to read, for candidates too, what may be private: {', '.join(private)}")
        others = [path for path in self.readable if path not in private]
        if lines and others:
            lines.append(f"beside that, to read: {', '.join(others)}")
        return lines

    def missing(self) -> str | None:
        """What is declared and not here; None if all of it is."""
        if names := [name for name in self.keys if name not in os.environ]:
            return f"keys names {', '.join(names)}; expected variables that are set here"
        if names := [name for name in self.keys if not os.environ[name]]:
            return f"keys names {', '.join(names)}, set here but empty; expected values"
        if (num := len(gpus_here(self.gpu_driver))) < self.gpus:
            return (
                f"gpus is {self.gpus:g}, and this machine has {num} with device nodes of"
                f" {self.gpu_driver}; expected at least as many"
            )
        if self.docker and not engine_socket():
            return (
                f"docker is true, and there is no socket of a container engine here (neither"
                f" {DOCKER_HOST} nor {ENGINE_SOCKETS[0]}); expected Docker running on this machine"
            )
        return None

    @contextmanager
    def opened(self) -> Iterator[Opened]:
        """What one evaluation gets of it; waits for GPUs that others use.

        Raises:
            InterruptedError: If the evaluation was cancelled while it waited.
        """
        keys = {name: os.environ[name] for name in self.keys}
        socket = engine_socket() if self.docker else ""
        if socket:
            keys[DOCKER_HOST] = f"unix://{socket}"
        with assigned_gpus(self.gpu_driver, self.gpus) if self.gpus else nullcontext(()) as nodes:
            yield Opened(keys, bool(self.network), nodes, socket)


def _is_private(path: str) -> bool:
    """Whether a path is in, or around, a place of private files, or not for everybody to read."""
    real = Path(os.path.realpath(path))
    places = [Path(os.path.realpath(os.path.expanduser(place))) for place in PRIVATE_PLACES]
    is_for_all = os.path.exists(real) and real.stat().st_mode & stat.S_IROTH
    return not is_for_all or any(
        real.is_relative_to(place) or place.is_relative_to(real)
        for place in places
        if place != Path("/")  # the home of a user without one
    )


class Confirmable(Protocol):
    """What judges the candidates of a folder, as far as a confirmation is about it."""

    def content(self) -> bytes:
        """Hash of each file that it may read, and of what else decides what it does."""

    def runs_candidate(self) -> bool:
        """Whether it may run its candidate in its own process."""


@dataclass(frozen=True, slots=True)
class ConfirmableFile:
    """The evaluator file of a folder."""

    evaluator: EvaluatorFile

    def content(self) -> bytes:
        """Hash of each file that it may read."""
        whole = sha256()
        for path in sorted(self.evaluator.shown()):
            about = path.stat()
            known = content_hash(path) or f"{about.st_size} {about.st_mtime_ns}".encode()
            whole.update(sha256(os.fsencode(path)).digest() + sha256(known).digest())
        return whole.digest()

    def runs_candidate(self) -> bool:
        """Whether its code, or a program beside it, may load the candidate."""
        shown = self.evaluator.shown()
        sources = sources_in(shown)
        if may_import_candidate(sources) or any(map(may_load_candidate, shown)):
            return True
        return self._imports_unknown(sources, shown)

    def _imports_unknown(self, sources: Iterable[str], shown: Iterable[Path]) -> bool:
        """Whether a module is imported that is neither the evaluator's nor installed.

        It may be a copy of the candidate.
        """
        own = {part for path in shown for part in path.with_suffix("").parts}
        names = {name.partition(".")[0] for each in sources for name in imported_modules(each)}
        packages = environment_folder(self.evaluator.folder) / "lib"
        return any(
            not (next(packages.glob(f"python*/site-packages/{name}*"), None) or find_spec(name))
            for name in names - own - {*sys.stdlib_module_names, "__main__", ""}
        )


def consent_file(folder: Path) -> Path:
    """Where it is kept what the user has confirmed for a folder."""
    place = user_place(folder, CONSENTS)
    return place.with_name(f"{place.name}.json")


def confirm(folder: Path, needs: Needs, evaluator: Confirmable, *, candidate_too: bool) -> Path:
    """Keep that the user confirms what the evaluator of a folder needs; the file that says so.

    `candidate_too` says that the candidate may use it as well.
    """
    place = consent_file(folder)
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    told = {
        "folder": str(folder.resolve()),
        "needs": asdict(needs),
        "content": _digest(needs, evaluator),
        "candidate_too": candidate_too,
    }
    fresh = place.with_name(f"{place.name}.{os.getpid()}")
    with open(os.open(fresh, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
        json.dump(told, file, indent=2)
    fresh.replace(place)
    return place


def consent_fault(
    folder: Path,
    needs: Needs,
    evaluator: Confirmable,
    layer: Layer = Layer.AUTO,
    shown: str = "",
) -> str | None:
    """Why the evaluator of a folder may not have what it needs; None if it may.

    Args:
        folder: The folder.
        needs: What the evaluator declares.
        evaluator: What judges the candidates.
        layer: What confines the programs that it starts; AUTO if that is not chosen yet.
        shown: Names what it needs where that has been shown; otherwise all of it is described.
    """
    if not needs:
        return None
    command = f"costada check {path_word(folder)} --confirm"
    why = sharing_reason(evaluator, layer) if needs.are_of_evaluator else None
    if why:
        command += " --candidate-too"
    what = shown or "; ".join(needs.described())
    missing = needs.missing()
    ask = f"to confirm that: {command}" + (f". Besides, {missing}" if missing else "")
    if why:
        ask = f"{why}, so the candidate has what you confirm, too; {ask}"
    place = consent_file(folder)
    try:
        told = json.loads(place.read_bytes())
    except FileNotFoundError:
        return f"the evaluator needs {what}; {ask}"
    except ValueError:
        return f"{place} is not JSON; expected what {command} writes"
    if told.get("content") != _digest(needs, evaluator):
        return (
            "the evaluator, or what it declares, has changed since you confirmed it. It needs"
            f" {what}; {ask}"
        )
    if why and not told.get("candidate_too"):
        return ask
    return missing


def check_sendable(needs: Needs) -> None:
    """Refuse to evaluate in a worker what needs more than files.

    Raises:
        ValueError: It does, with what it needs.
    """
    if needs.are_of_evaluator:
        raise ValueError(
            f"the evaluator needs {'; '.join(needs.described())}. Workers open nothing; expected"
            " evaluations on the machine of the run, without --evaluate-on"
        )


def sharing_reason(evaluator: Confirmable, layer: Layer) -> str | None:
    """Why candidates have what the evaluator is given; None if they have not."""
    if evaluator.runs_candidate():
        return "the evaluator may run its candidate in its own process"
    if layer in UNCONFINED:
        return f"sandbox is {layer.value!r}, which keeps no candidate from the evaluator"
    return None


def _digest(needs: Needs, evaluator: Confirmable) -> str:
    """Hash of what is declared and of what judges the candidates."""
    declared = json.dumps(asdict(needs), sort_keys=True).encode()
    return sha256(declared + evaluator.content()).hexdigest()
