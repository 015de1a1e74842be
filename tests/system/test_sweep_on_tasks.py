"""Sweeps on a real Dask cluster and a real Ray cluster, both of two workers."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from socket import socket
from time import monotonic, sleep

import pytest

from costada.experiments.sweep.sweep import last_step
from costada.runs.folder import RunFolder
from costada.store.run_store import RunStore

FINISHED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
METHOD = "costada"
ITERATIONS = 16
EVALUATION_SECONDS = 0.3
PATIENCE_SECONDS = 120
COMMAND = [sys.executable, "-c", "from costada.cli.main import main; main()"]


@pytest.fixture(scope="module")
def slow(near, tmp_path_factory):
    """A problem whose evaluations take a while, so that a run can be hit in its middle."""
    folder = tmp_path_factory.mktemp("slow") / "slow"
    shutil.copytree(near, folder)
    evaluator = folder / "evaluator.py"
    wait = f"    __import__('time').sleep({EVALUATION_SECONDS})\n    value ="
    evaluator.write_text(evaluator.read_text().replace("    value =", wait))
    return folder


@pytest.fixture(scope="module")
def undisturbed(slow, tmp_path_factory, invoke):
    """The steps of the runs of seeds 0 and 1 by a sweep of this machine."""
    out = tmp_path_factory.mktemp("undisturbed")
    result = invoke(*words(slow, out, "--jobs", 2))
    assert result.exit_code == FINISHED, result.output
    return [steps(out, seed).read_bytes() for seed in (0, 1)]


def words(slow: Path, out: Path, *more: object) -> list[object]:
    given = ("--max-iterations", ITERATIONS, "--lost-calls", "ignore", "--seeds", 2)
    return ["sweep", "--problems", slow, "--methods", METHOD, "--out", out, *given, *more]


def steps(out: Path, seed: int) -> Path:
    return out / "slow" / METHOD / f"seed-{seed}" / "steps.jsonl"


def begun(*arguments: object) -> subprocess.Popen[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )


def wait_until(condition) -> None:
    end = monotonic() + PATIENCE_SECONDS
    while not condition():
        assert monotonic() < end
        sleep(0.1)


def wait_for_steps(out: Path) -> None:
    wait_until(lambda: all(last_step(steps(out, seed)) for seed in (0, 1)))


def check_exact(out: Path, undisturbed: list[bytes]) -> None:
    """Both runs are as if nothing had happened, and no call is on the ledger twice."""
    assert [steps(out, seed).read_bytes() for seed in (0, 1)] == undisturbed
    for seed in (0, 1):
        with RunStore(RunFolder(steps(out, seed).parent).database, is_read_only=True) as store:
            (run_id,) = store.run_ids()
            keys = [(c.iteration, c.role, c.attempt) for c in store.call_log.calls(run_id)]
        assert len(set(keys)) == len(keys)


class Cluster:
    """The address of a cluster, and its workers."""

    def __init__(self, address: str) -> None:
        self.address = address

    def parent_of(self, run: Path) -> int:
        """The worker process that has started the process of a run."""
        pid = json.loads((run / "run.lease").read_text())["pid"]
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[1])


@contextmanager
def dask_cluster(folder: Path):
    if find_spec("distributed") is None:
        pytest.skip("needs Dask: the extra dask")
    with ExitStack() as stack:
        file = folder / "scheduler.json"
        options = ["--no-dashboard", f"--scheduler-file={file}"]
        local = ["--host=127.0.0.1", "--port=0"]
        start(stack, "distributed.cli.dask_scheduler", *options, *local)
        wait_until(file.exists)
        for _ in range(2):
            only = ["--nthreads=1", "--nworkers=1", f"--local-directory={folder}"]
            start(stack, "distributed.cli.dask_worker", *options, *only)
        yield Cluster(json.loads(file.read_text())["address"].replace("tcp", "dask"))


@contextmanager
def ray_cluster(folder: Path):
    if find_spec("ray") is None:
        pytest.skip("needs Ray: the extra ray")
    port = 20_000 + os.getpid() % 10_000
    place = [f"--ray-client-server-port={port}", f"--temp-dir={folder}", "--port=0"]
    options = ["--head", "--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats"]
    options += ["--node-ip-address=127.0.0.1", "--min-worker-port=0", "--max-worker-port=0"]
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # also for the commands that connect
        patch.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")  # it may kill the server of a connection
        start(stack, "ray.scripts.scripts", "start", "--block", *options, *place)
        # `ray stop` would also stop the clusters of others
        stack.callback(kill_all_that_name, str(folder))
        wait_until(lambda: is_open(port))
        yield Cluster(f"ray://127.0.0.1:{port}")


def is_open(port: int) -> bool:
    with socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def kill_all_that_name(folder: str) -> None:
    """Kill the processes that have a folder in their arguments."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder in (place / "cmdline").read_text():
                os.kill(int(place.name), signal.SIGKILL)


def start(stack: ExitStack, module: str, *options: str) -> None:
    """Start a process that ends with the stack; its children get the signal as well."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )

    def stop() -> None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)

    stack.callback(stop)


@pytest.fixture(scope="module", params=[dask_cluster, ray_cluster], ids=["dask", "ray"])
def cluster(request, tmp_path_factory):
    # a short path: Ray keeps sockets in it
    folder = tmp_path_factory.mktemp("c")
    with request.param(folder) as running:
        yield running


def test_a_lost_worker_is_replaced_and_its_run_resumed(cluster, slow, undisturbed, tmp_path):
    process = begun(*words(slow, tmp_path, "--on", cluster.address))
    wait_for_steps(tmp_path)
    status = json.loads(begun("sweep", "--out", tmp_path, "--status", "--json").communicate()[0])
    assert [run["status"] for run in status] == ["running", "running"]
    os.kill(cluster.parent_of(steps(tmp_path, 1).parent), signal.SIGKILL)
    printed, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == FINISHED, errors
    assert "Finished 2 of 2 runs" in printed
    check_exact(tmp_path, undisturbed)
    again = begun(*words(slow, tmp_path, "--on", cluster.address))
    assert "2 finished before" in again.communicate(timeout=PATIENCE_SECONDS)[0]


@pytest.mark.parametrize("way", ["ctrl-c", "--cancel", "kill -9"])
def test_a_stopped_sweep_is_resumed_by_the_same_command(cluster, slow, undisturbed, tmp_path, way):
    process = begun(*words(slow, tmp_path, "--on", cluster.address))
    wait_for_steps(tmp_path)
    if way == "--cancel":
        begun("sweep", "--out", tmp_path, "--cancel").communicate(timeout=PATIENCE_SECONDS)
    else:
        process.send_signal(signal.SIGINT if way == "ctrl-c" else signal.SIGKILL)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == (-signal.SIGKILL if way == "kill -9" else INTERRUPTED)
    again = begun(*words(slow, tmp_path, "--on", cluster.address))
    _, errors = again.communicate(timeout=PATIENCE_SECONDS)
    assert again.returncode == FINISHED, errors
    check_exact(tmp_path, undisturbed)


def test_a_cluster_that_does_not_respond_is_refused(slow, tmp_path):
    if find_spec("distributed") is None:
        pytest.skip("needs Dask: the extra dask")
    process = begun(*words(slow, tmp_path / "out", "--on", "dask://127.0.0.1:9"))
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == REFUSED
    assert "--on dask://127.0.0.1:9: no Dask scheduler responds there" in errors
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--on", "pbs"), "--on: got 'pbs', expected slurm, dask://HOST:PORT"),
        (("--slurm", "mem=1G"), "--slurm: needs --on slurm"),
        (("--detach",), "--detach: needs --on slurm"),
        (("--status",), "holds no sweep of a cluster, expected one made with --on"),
    ],
)
def test_options_that_do_not_fit_are_refused(slow, tmp_path, invoke, given, message):
    result = invoke(*words(slow, tmp_path / "out", *given))
    assert result.exit_code == REFUSED
    assert message in " ".join(result.output.split())
