"""Sweeps on a real Dask cluster and a real Ray cluster, both of two workers."""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from socket import socket

import pytest
from ports import free_port
from remote_engines import has_ray
from swept_runs import (
    FAILED,
    FINISHED,
    INTERRUPTED,
    PATIENCE_SECONDS,
    REFUSED,
    begun,
    budgets,
    check_exact,
    check_purse,
    costada,
    has_purse,
    kill_with_worker,
    parent_of,
    process_of,
    statuses,
    wait_for_steps,
    wait_until,
    watched_purse,
    words,
)

from costada.experiments.sweep.job_file import order_path
from costada.store.address import shown_address

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2 * PATIENCE_SECONDS)]


class Cluster:
    """The address of a cluster, and the process that the others connect to."""

    def __init__(self, address: str, head: int) -> None:
        self.address, self.head = address, head


@contextmanager
def dask_cluster(folder: Path):
    if find_spec("distributed") is None:
        pytest.skip("distributed is not installed: pip install 'costada[dask]'")
    with ExitStack() as stack:
        file = folder / "scheduler.json"
        options = ["--no-dashboard", f"--scheduler-file={file}"]
        local = ["--host=127.0.0.1", "--port=0"]
        head = start(stack, "distributed.cli.dask_scheduler", *options, *local)
        wait_until(file.exists)
        for _ in range(2):
            only = ["--nthreads=1", "--nworkers=1", f"--local-directory={folder}"]
            start(stack, "distributed.cli.dask_worker", *options, *only)
        yield Cluster(json.loads(file.read_text())["address"].replace("tcp", "dask"), head)


@contextmanager
def ray_cluster(folder: Path):
    if not has_ray():
        pytest.skip("ray is not installed: pip install 'costada[ray]'")
    port = free_port()
    place = [f"--ray-client-server-port={port}", f"--temp-dir={folder}", "--port=0"]
    options = ["--head", "--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats"]
    options += ["--node-ip-address=127.0.0.1", "--min-worker-port=0", "--max-worker-port=0"]
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # also for the commands that connect
        patch.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")  # it may kill the server of a connection
        head = start(stack, "ray.scripts.scripts", "start", "--block", *options, *place)
        # `ray stop` would also stop the clusters of others
        stack.callback(kill_all_that_name, str(folder))
        wait_until(lambda: is_open(port))
        yield Cluster(f"ray://127.0.0.1:{port}", head)


def is_open(port: int) -> bool:
    with socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def kill_all_that_name(folder: str) -> None:
    """Kill the processes that have a folder in their arguments."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder in (place / "cmdline").read_text():
                os.kill(int(place.name), signal.SIGKILL)


def start(stack: ExitStack, module: str, *options: str) -> int:
    """Start a process that ends with the stack, whose children get the signal as well."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )

    def stop() -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)

    stack.callback(stop)
    return process.pid


@pytest.fixture(scope="module", params=[dask_cluster, ray_cluster], ids=["dask", "ray"])
def cluster(request, tmp_path_factory):
    # a short path: Ray keeps sockets in it
    folder = tmp_path_factory.mktemp("c")
    with request.param(folder) as running:
        yield running


def test_a_lost_worker_is_replaced_and_its_run_resumed(
    cluster, slow, undisturbed, tmp_path, invoke
):
    process = begun(*words(slow, tmp_path, "--on", cluster.address))
    wait_for_steps(tmp_path)
    assert statuses(invoke("sweep", "--out", tmp_path, "--status", "--json")) == ["running"] * 2
    os.kill(parent_of(process_of(tmp_path, 1)), signal.SIGKILL)
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


@pytest.fixture
def dask(tmp_path):
    with dask_cluster(tmp_path) as running:
        yield running


@pytest.fixture
def address(postgres_address):
    return shown_address(postgres_address)


def test_runs_in_postgres_survive_a_killed_worker(
    dask, slow, undisturbed, tmp_path, address, invoke
):
    out = tmp_path / "sweep"
    given = words(slow, out, "--on", dask.address, "--store", address)
    process = begun(*given)
    wait_for_steps(out)
    assert statuses(invoke("sweep", "--out", out, "--status", "--json")) == ["running"] * 2
    kill_with_worker(process_of(out, 1, address))
    printed, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == FINISHED, errors
    assert "Finished 2 of 2 runs" in printed
    check_exact(out, undisturbed, address)
    again = costada(*given)
    assert "2 finished before" in again.stdout


def test_a_cancelled_sweep_in_postgres_is_resumed(
    dask, slow, undisturbed, tmp_path, address, invoke
):
    out = tmp_path / "sweep"
    given = words(slow, out, "--on", dask.address, "--store", address)
    process = begun(*given)
    wait_for_steps(out)
    other = "postgresql://other@localhost/other"
    refused = invoke("sweep", "--out", out, "--cancel", "--store", other)
    assert refused.exit_code == REFUSED
    assert order_path(out).read_text() == ""
    cancelled = invoke("sweep", "--out", out, "--cancel", "--store", address)
    assert cancelled.exit_code == FINISHED, cancelled.output
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == INTERRUPTED
    shown = invoke("sweep", "--out", out, "--status", "--store", address, "--json")
    assert statuses(shown) == ["waiting", "waiting"]
    again = costada(*given)
    assert again.returncode == FINISHED, again.stderr
    check_exact(out, undisturbed, address)


def test_a_killed_worker_leaves_a_shared_purse_exact(
    dask, slow, undisturbed, tmp_path, address, invoke
):
    out = tmp_path / "sweep"
    budget, total = budgets(undisturbed)
    given = words(slow, out, "--on", dask.address, "--store", address, "--purse", address)
    given += ["--budget", budget, "--budget-policy", "hard", "--lost-calls", "count"]
    given += ["--seeds", 3, "--max-iterations", 100]
    process = begun(*given, "--total", total, "--json")
    wait_until(lambda: has_purse(address, out.name))
    with watched_purse(address, out.name) as seen:
        wait_for_steps(out)
        kill_with_worker(process_of(out, 1, address))
        printed, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == FINISHED, errors
    assert statuses(printed)[:2] == ["finished", "finished"]
    assert statuses(printed)[2] in ("finished", "cut short", "skipped")
    assert 0 < max(seen) <= Decimal(str(total))
    check_purse(address, out, total, range(3), address)
    assert "failed" not in statuses(invoke("sweep", "--out", out, "--status", "--json"))

    again = costada(*given, "--total", 4 * budget, "--json")
    assert again.returncode == FINISHED, again.stderr
    assert statuses(again) == ["finished"] * 3
    check_purse(address, out, 4 * budget, range(3), address)


def test_runs_that_a_purse_cannot_pay_for_are_skipped(dask, slow, tmp_path, address, invoke):
    out = tmp_path / "sweep"
    given = words(slow, out, "--on", dask.address, "--purse", address, "--max-iterations", 2)
    given += ["--budget", 0.5, "--budget-policy", "hard", "--lost-calls", "count"]
    result = costada(*given, "--total", 1e-7, "--json")
    assert result.returncode == FINISHED, result.stderr
    assert statuses(result) == ["skipped", "skipped"]
    assert statuses(invoke("sweep", "--out", out, "--status", "--json")) == ["skipped"] * 2
    assert not list(out.rglob("*.log"))
    again = costada(*given, "--total", 2, "--json")
    assert statuses(again) == ["finished", "finished"]


def test_a_lost_scheduler_is_reported_and_another_cluster_resumes(
    slow, undisturbed, tmp_path, tmp_path_factory
):
    out = tmp_path / "sweep"
    with dask_cluster(tmp_path) as lost:
        process = begun(*words(slow, out, "--on", lost.address))
        wait_for_steps(out)
        os.kill(lost.head, signal.SIGKILL)
        printed, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == FAILED, errors
    assert "--on: the connection to dask://" in errors
    assert "Repeat the command to resume." in errors
    assert "Traceback" not in errors, errors
    assert printed.count(": interrupted") == 2
    with dask_cluster(tmp_path_factory.mktemp("second")) as second:
        again = costada(*words(slow, out, "--on", second.address))
    assert again.returncode == FINISHED, again.stderr
    check_exact(out, undisturbed)


def test_a_cluster_that_does_not_respond_is_refused(slow, tmp_path):
    if find_spec("distributed") is None:
        pytest.skip("distributed is not installed: pip install 'costada[dask]'")
    result = costada(*words(slow, tmp_path / "out", "--on", "dask://127.0.0.1:9"))
    assert result.returncode == REFUSED
    assert "--on dask://127.0.0.1:9: no Dask scheduler responds there" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--on", "pbs"), "--on: got 'pbs', expected slurm, dask://HOST:PORT"),
        (("--slurm", "mem=1G"), "--slurm: needs --on slurm"),
        (("--detach",), "--detach: needs --on slurm"),
        (("--status",), "no sweep of a cluster, expected one made with --on; `costada watch`"),
    ],
)
def test_options_that_do_not_fit_are_refused(slow, tmp_path, invoke, given, message):
    result = invoke(*words(slow, tmp_path / "out", *given))
    assert result.exit_code == REFUSED
    assert message in " ".join(result.output.split())
