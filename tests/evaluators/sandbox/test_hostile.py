"""Every program of the hostile collection gets the evaluation its entry demands, in every layer.

One watcher per layer tries the whole collection; the tests then look at its records.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hostile.complaints import complaints
from hostile.corpus import LAYERS, SHARED, own_programs, shared_programs
from hostile.ground import system_objects

PATIENCE_SECONDS = 600
pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(PATIENCE_SECONDS + 60),
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="watching other processes needs Linux"
    ),
]
STRONGEST, WITH_MODELS = "bubblewrap", "models"
PROGRAMS = [*shared_programs(), *own_programs()]
TRIED = sorted(
    {(layer, each.category) for layer in LAYERS for each in PROGRAMS if each.is_run_in(layer)}
)


@pytest.fixture(scope="module")
def records(request, tmp_path_factory):
    """For each layer that tests are run for: each program's record, or why the layer is absent."""
    path = [os.environ.get("PYTHONPATH", ""), str(Path(__file__).parent)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
    every = {layer: [layer] for layer in LAYERS} | {WITH_MODELS: [STRONGEST, "models"]}
    own = [each for each in request.session.items if each.path == request.path]
    chosen = {each.callspec.params.get("layer") for each in own if hasattr(each, "callspec")}
    watched = {name: every[name] for name in every if name in chosen}
    roots = {name: tmp_path_factory.mktemp(name) for name in watched}
    watchers = [
        subprocess.Popen(
            [sys.executable, "-m", "hostile.watch", layer, str(roots[name]), *models],
            env=environment,
        )
        for name, (layer, *models) in watched.items()
    ]
    try:
        ends = [watcher.wait(PATIENCE_SECONDS) for watcher in watchers]
    finally:
        for watcher in watchers:
            watcher.kill()
            watcher.wait()
    assert ends == [0] * len(watched)
    return {layer: read(root / "records.jsonl") for layer, root in roots.items()}


def read(path):
    """The records of a file by name of the program."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line.get("name", "unavailable"): line for line in lines}


def record_of(name, layer, records):
    """One record; skip where the layer is not offered."""
    if "unavailable" in records[layer]:
        pytest.skip(records[layer]["unavailable"]["unavailable"])
    return records[layer][name]


@pytest.mark.skipif(not SHARED.exists(), reason=f"the collection {SHARED} is absent")
def test_the_shared_collection_is_tried():
    assert {"shared_endless_loop", "shared_control_valid"} <= {p.name for p in PROGRAMS}


def test_the_collection_covers_all_kinds_of_misbehaviour():
    kinds = {program.category for program in own_programs()}
    assert kinds >= {"time", "process", "memory", "secrets", "network", "files", "protocol"}
    assert kinds >= {"tampering", "types", "source", "exit", "output", "persistence", "tolerance"}
    names = [program.name for program in PROGRAMS]
    assert len(names) == len(set(names))


SEGMENT = """
import ctypes, sys
libc = ctypes.CDLL(None)
number = libc.shmget(0, 4096, 0o1600)
print(number, flush=True)
sys.stdin.read()
libc.shmctl(number, 0, None)
"""
"""Has a segment of memory until its input ends."""


@pytest.mark.parametrize(("begun_by", "is_ours"), [([], True), (["setsid", "--fork"], False)])
def test_a_segment_of_a_running_process_elsewhere_is_nothing_that_was_left(begun_by, is_ours):
    command = [*begun_by, sys.executable, "-c", SEGMENT]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        number = process.stdout.readline().strip()
        if begun_by:
            process.wait()  # what it has begun is an orphan then
        assert system_objects()[f"shm 0 {number}"] != is_ours


@pytest.mark.parametrize(("layer", "category"), TRIED)
def test_hostile_programs_get_their_evaluations_in_every_layer(layer, category, records):
    found = {
        program.name: complaints(program, record_of(program.name, layer, records), layer)
        for program in PROGRAMS
        if program.category == category and program.is_run_in(layer)
    }
    assert {name: said for name, said in found.items() if said} == {}


@pytest.mark.parametrize("layer", [WITH_MODELS])
def test_a_channel_to_models_is_of_no_use_to_hostile_programs(layer, records):
    assert record_of("the end", layer, records)["left"] == []
    found = {
        program.name: complaints(program, records[layer][program.name], STRONGEST)
        for program in PROGRAMS
        if program.is_run_in(STRONGEST, with_models=True)
    }
    assert len(found) > 100
    assert {name: said for name, said in found.items() if said} == {}


@pytest.mark.parametrize("layer", LAYERS)
def test_the_whole_collection_was_tried(layer, records):
    record_of("the end", layer, records)
    tried = {program.name for program in PROGRAMS if program.is_run_in(layer)}
    assert tried <= records[layer].keys()


@pytest.mark.parametrize("layer", LAYERS)
def test_nothing_is_left_when_the_trusted_process_has_ended(layer, records):
    record = record_of("the end", layer, records)
    assert record["left"] == []
    assert "CANARY" not in record["stderr"]
