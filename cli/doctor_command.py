"""`costada doctor`: what this machine offers a search, and why something does not work."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from shutil import which

import typer
from packaging.requirements import Requirement

from costada.cli import options
from costada.evaluators.sandbox.layer_choice import layer_fault
from costada.evaluators.sandbox.layers import BY_STRENGTH, Layer
from costada.models.providers import KEY_VARIABLES
from costada.reports.terminal import show
from costada.runs.interruption import ExitCode

COMPILERS = ("gcc", "g++", "clang", "gfortran", "rustc", "cargo", "go", "node", "julia", "javac")
PROGRAMS = ("git", "docker", "podman")
GPU_DEVICES = ("nvidia[0-9]*", "dri/renderD*", "kfd")
"""Patterns of device nodes below `/dev`."""

OPEN = "works, but a candidate can read your files and use the network"

Facts = Mapping[str, Mapping[str, str]]
"""By section and name; an empty text: not there."""


def doctor(as_json: options.AsJson = False) -> None:
    """Check this machine: sandbox, keys, programs, GPUs and extras.

    Shows only the names of keys and makes no request. Fails if no layer of the sandbox works.
    """
    layers = {
        layer.value: layer_fault(layer) or ("works" if layer.implementation.confines else OPEN)
        for layer in (*BY_STRENGTH, Layer.CONTAINER)
    }
    found: Facts = {
        "CostAda": {
            "version": distribution("costada").version,
            "Python": f"{platform.python_version()} ({sys.executable})",
            "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
            "cores": str(os.cpu_count()),
        },
        "sandbox": layers,
        "keys": {name: "set" if os.environ.get(name) else "" for name in KEY_VARIABLES.values()},
        "programs": {name: which(name) or "" for name in (*PROGRAMS, *COMPILERS)},
        "GPUs": {str(path): "found" for pattern in GPU_DEVICES for path in _devices(pattern)},
        "extras": {name: "installed" if is_there else "" for name, is_there in _extras().items()},
    }
    show(json.dumps(found, indent=2) if as_json else "\n".join(_lines(found)))
    if all(layer_fault(layer) for layer in BY_STRENGTH):
        raise typer.Exit(ExitCode.FAILED)


def _lines(found: Facts) -> Iterable[str]:
    """The facts for a terminal: those without a value in one line at the end of their section."""
    for section, facts in found.items():
        yield section
        width = max((len(name) for name, text in facts.items() if text), default=0)
        yield from (f"  {name:<{width}}  {text}" for name, text in facts.items() if text)
        if absent := [name for name, text in facts.items() if not text]:
            yield f"  not found: {', '.join(absent)}"
        if not facts:
            yield "  none found"
    yield "To install an extra: pip install 'costada[NAME]'"


def _devices(pattern: str) -> list[Path]:
    return sorted(Path("/dev").glob(pattern))


def _extras() -> Mapping[str, bool]:
    """Whether all distributions of each extra are installed."""
    package = distribution("costada")
    needed: dict[str, list[Requirement]] = {
        name: [] for name in package.metadata.get_all("Provides-Extra") or ()
    }
    for line in package.requires or ():
        requirement = Requirement(line)
        for name, requirements in needed.items():
            if requirement.marker and requirement.marker.evaluate({"extra": name}):
                requirements.append(requirement)
    return {name: all(map(_is_installed, each)) for name, each in needed.items()}


def _is_installed(requirement: Requirement) -> bool:
    try:
        return distribution(requirement.name).version in requirement.specifier
    except PackageNotFoundError:
        return False
