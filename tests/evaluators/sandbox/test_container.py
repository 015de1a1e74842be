"""The container layer: in the engine this machine has, and in one that stands in for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sandbox_runs import HERE, becomes_true, output_of, run_in, start_script, why_absent

from costada.evaluators.sandbox.layer_choice import PROBE_FILE
from costada.evaluators.sandbox.layers import BY_STRENGTH, Layer, container
from costada.evaluators.sandbox.layers.container import ENGINES, local_engine, run_command
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.opened import Opened
from costada.evaluators.sandbox.slot import Slot
from costada.evaluators.sandbox.slot_kind import CopiedFile, SlotKind

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="descriptors reach a container only on Linux"
    ),
]
KIND = SlotKind(Layer.CONTAINER, ())
PODMAN = ENGINES[1]
VIEW = (["/usr", "/usr/lib", "/no/such/path"], 3, {"HOME": "/tmp/costada/work"})
RELEASE = os.uname().release
TRY = "try: chosen_layer(Layer.CONTAINER)\nexcept ValueError as error: print(error)"
REFUSED = "sandbox is 'container', which does not work here: "


def script(folder, name, text):
    """Write a program that a PATH of this folder finds."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def only_path(tmp_path, monkeypatch):
    """A folder that is all of PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    local_engine.cache_clear()
    yield folder
    local_engine.cache_clear()


def put_stand_in(folder, patch):
    """Put an engine that runs containers in bubblewrap first on PATH."""
    if reason := why_absent(Layer.BUBBLEWRAP):
        pytest.skip(reason)
    command = f'exec {sys.executable} {HERE / "fake_engine.py"} "$@"'
    script(folder, "docker", f"FAKE_ENGINE_FOLDER={folder} {command}")
    patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    patch.setenv("FAKE_ENGINE_FOLDER", str(folder))
    local_engine.cache_clear()


@pytest.fixture(scope="module", params=["the engine of this machine", "a stand-in"])
def engine(request, tmp_path_factory):
    """Each engine that runs containers here: one may be installed and answer, and yet run none."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "a stand-in":
            put_stand_in(tmp_path_factory.mktemp("engine"), patch)
        elif reason := why_absent(Layer.CONTAINER):
            pytest.skip(reason)
        yield local_engine()[0].program
    local_engine.cache_clear()


@pytest.fixture(scope="module")
def slot(engine, tmp_path_factory):
    """A slot that was started among secrets, with a file that its candidates may read."""
    folder = tmp_path_factory.mktemp("problem")
    (folder / "data.txt").write_text("known")
    about = (folder / "data.txt").stat()
    identity = (about.st_dev, about.st_ino)
    copied = CopiedFile(str(folder / "data.txt"), "folder/data.txt", identity, 5, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HTTPS_PROXY", "http://user:CANARY@proxy")
        patch.setenv("OPENAI_API_KEY", "sk-CANARY")
        slot = Slot(SlotKind(Layer.CONTAINER, (), (copied,)))
    yield slot
    slot.close()


def containers(engine):
    """The names of all containers of the sandbox, of other runs too."""
    if folder := os.environ.get("FAKE_ENGINE_FOLDER"):
        return {path.name for path in Path(folder).glob("costada-*")}
    asked = [engine, "ps", "--all", "--format", "{{.Names}}", "--filter", "name=costada-"]
    return set(subprocess.check_output(asked, text=True).split())


def test_an_engine_shows_little_and_allows_nothing(only_path, monkeypatch):
    script(only_path, "docker", f"echo {RELEASE} '[name=seccomp]'")
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4000}.__getitem__)
    monkeypatch.setattr(os, "getuid", lambda: 12)
    monkeypatch.setattr(os, "getgid", lambda: 34)
    command = run_command(Path("/t/costada-x"), *VIEW)
    proxies = "ALL_PROXY FTP_PROXY HTTPS_PROXY HTTP_PROXY NO_PROXY"
    cleared = " ".join(f"--env {name}=" for name in (proxies + " " + proxies.lower()).split())
    assert " ".join(command) == (
        "docker run --rm --pull never --name costada-x --stop-signal KILL"
        " --network none --ipc none --hostname sandbox --read-only --cap-drop ALL"
        " --security-opt no-new-privileges --security-opt label=disable --pids-limit 4096"
        " --tmpfs /dev/shm:rw,size=4k,mode=0555 --memory 3000000 --user 12:34"
        " --tmpfs /tmp/costada:rw,nosuid,nodev,exec,size=3145728,mode=1777"
        " --mount type=bind,source=/t/costada-x/socket,target=/tmp/costada-socket,readonly"
        " --mount type=bind,source=/usr,target=/usr,readonly"
        f" {cleared} --env HOME=/tmp/costada/work --workdir /tmp/costada costada-empty:1"
    )


def test_an_engine_opens_the_devices_and_the_socket_that_are_declared(only_path, tmp_path):
    script(only_path, "docker", f"echo {RELEASE} '[name=seccomp]'")
    (tmp_path / "engine.sock").touch()
    path = str(tmp_path / "engine.sock")
    opened = Opened(devices=("/dev/nvidia0", "/dev/nvidiactl"), engine_socket=path)
    command = " ".join(run_command(Path("/t/costada-x"), *VIEW, opened))
    assert " --device /dev/nvidia0 --device /dev/nvidiactl --group-add " in command
    assert f" --mount type=bind,source={path},target={path},readonly" in command
    assert " --network none " in command


def test_podman_without_root_keeps_its_own_user_and_adds_nothing(only_path):
    script(only_path, "podman", f"echo {RELEASE} rootless")
    command = run_command(Path("/t/costada-x"), *VIEW)
    assert command[0] == "podman"
    assert "--user" not in command
    assert {"--http-proxy=false", "--read-only-tmpfs=false"} <= set(command)


def test_the_layer_is_never_chosen_unasked():
    assert Layer.CONTAINER not in BY_STRENGTH


@pytest.mark.parametrize(
    ("programs", "error", "reason"),
    [
        ({}, FileNotFoundError, "neither docker nor podman is installed: install one of them"),
        (
            {"docker": "echo wait >&2; echo no daemon >&2; exit 1", "podman": "exit 125"},
            RuntimeError,
            "docker does not answer: no daemon; podman does not answer: no output",
        ),
        (
            {"docker": "echo 6.6.87-linuxkit '[]'"},
            RuntimeError,
            "docker runs on another machine, with the kernel 6.6.87-linuxkit",
        ),
    ],
)
def test_engines_that_do_not_work_are_named_with_their_reasons(only_path, programs, error, reason):
    for name, text in programs.items():
        script(only_path, name, text)
    with pytest.raises(error, match=reason):
        local_engine()


def test_the_first_engine_that_works_here_is_taken(only_path):
    script(only_path, "docker", "exit 1")
    script(only_path, "podman", f"echo {RELEASE} rootless")
    assert local_engine() == (PODMAN, True)


def test_an_engine_that_makes_no_image_is_named(only_path, tmp_path):
    text = f'[ "$1" = info ] && echo {RELEASE} && exit 0; echo disk full >&2; exit 1'
    script(only_path, "docker", text)
    with pytest.raises(RuntimeError, match="docker makes no image: disk full"):
        run_command(tmp_path, *VIEW)


def test_a_container_that_does_not_start_is_an_error_and_leaves_nothing(
    only_path, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    text = f'case "$1" in info) echo {RELEASE};; run) echo cgroups are missing >&2; exit 125;; esac'
    script(only_path, "docker", text)
    expected = r"docker started no process for candidates \(container\): cgroups are missing"
    with pytest.raises(RuntimeError, match=expected):
        Slot(KIND)
    assert list(tmp_path.glob("costada-*")) == []


def test_a_slot_without_an_engine_that_answers_leaves_nothing(only_path, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    script(only_path, "docker", "echo no daemon >&2; exit 1")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(RuntimeError, match="docker does not answer: no daemon"):
        Slot(KIND)
    assert os.listdir("/proc/self/fd") == before
    assert list(tmp_path.glob("costada-*")) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "neither docker nor podman is installed: install one of them"),
        (
            f'case "$1" in info) echo {RELEASE};; run) echo no limits >&2; exit 126;; esac',
            "podman started no process for candidates (container): no limits",
        ),
    ],
)
def test_the_layer_is_refused_with_the_reason(tmp_path, text, reason):
    if text:
        script(tmp_path / "programs", "podman", text)
    assert output_of(TRY, tmp_path, PATH=str(tmp_path / "programs")) == REFUSED + reason


def test_the_image_is_made_once_and_has_no_files(tmp_path, monkeypatch):
    put_stand_in(tmp_path, monkeypatch)
    for _ in range(2):
        container.run_command(tmp_path, *VIEW)
    local_engine.cache_clear()
    log = (tmp_path / "log.jsonl").read_text()
    assert log.count('"import"') == 1
    assert (tmp_path / "image").read_bytes() == bytes(10240)


def test_a_probe_cannot_get_out(slot, tmp_path):
    canary = tmp_path / "canary"
    canary.write_text("readable")
    done = run_in(slot, PROBE_FILE.read_text(), entry_point="probe", canary=str(canary))
    assert set(done.output.values()) == {False}


def test_a_candidate_sees_no_more_than_in_the_other_layers(slot):
    source = "import os\ndef f(): return [dict(os.environ), os.getcwd(), os.listdir('.')]"
    environment, cwd, files = run_in(slot, source).output
    threads = {name for name in environment if name.endswith("_THREADS")}
    assert set(environment) - threads == {"HOME", "TMPDIR", "PYTHONHASHSEED"}
    assert environment["HOME"] == cwd == "/tmp/costada/work"
    assert sorted(files) == ["candidate.py", "folder", "home", "program"]
    source = "def f(): return open('/proc/self/environ').read()"
    assert "CANARY" not in f"{run_in(slot, source)}"


def test_candidates_follow_each_other_in_clean_processes(slot):
    source = "import os, sys\nmet = hasattr(sys, 'met')\nsys.met = 1\ndef f(): return met"
    assert [run_in(slot, source).output for _ in range(3)] == [False] * 3


def test_limits_hold(slot):
    late = run_in(slot, "def f():\n    while True: pass", Limits(wall_seconds=0.3))
    assert late.error == "timeout: the program exceeded 0.3 s"
    large = run_in(slot, "def f(): return bytes(10**9)", Limits(wall_seconds=20, memory_mb=200))
    assert large.error.startswith("MemoryError: out of memory, the limit is 200 MB")
    many = "def f():\n    for n in range(3): open(f'{n}', 'wb').write(bytes(9 * 2**20))\n"
    many += "    import time; time.sleep(9)"
    filled = run_in(slot, many, Limits(wall_seconds=20, scratch_mb=10))
    assert filled.error == "the program's files took more than 10 MB"


def test_a_candidate_of_an_evaluator_has_a_copy_of_its_files(slot):
    [copied] = slot.kind.files
    own = "def f(): return open('folder/data.txt').read()"
    assert run_in(slot, own).output == "known"
    write = "def f(): return open('folder/data.txt', 'w').write('x')"
    assert run_in(slot, write).output == 1
    assert Path(copied.path).read_text() == "known"
    assert run_in(slot, own).output == "known"


@pytest.mark.parametrize("end", ["close", "destroy"])
def test_a_slot_that_ends_leaves_no_container_and_no_folder(engine, end, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = containers(engine)
    slot = Slot(KIND)
    [name] = containers(engine) - before
    getattr(slot, end)()
    assert becomes_true(lambda: name not in containers(engine))
    assert list(tmp_path.glob("costada-*")) == []


def test_a_container_that_is_killed_fails_the_evaluation_with_a_reason(engine):
    before = containers(engine)
    slot = Slot(KIND)
    [name] = containers(engine) - before
    with subprocess.Popen(["sh", "-c", f"sleep 0.5; exec {engine} rm --force {name}"]):
        result = run_in(slot, "import time\ndef f():\n    time.sleep(600)")
    assert result.is_sandbox_fault
    assert becomes_true(lambda: name not in containers(engine))


def test_a_container_ends_with_the_process_that_wanted_it(engine, tmp_path):
    before = containers(engine)
    text = "slot = Slot(SlotKind(Layer.CONTAINER, ()))\nprint(1, flush=True)\ntime.sleep(60)"
    with start_script(text, tmp_path) as process:
        line = process.stdout.readline()
        started = containers(engine) - before
        process.kill()
    assert (line, len(started)) == ("1\n", 1)
    assert becomes_true(lambda: not started & containers(engine))
    assert list(tmp_path.glob("costada-*")) == []
