"""`docker compose` with the repository's files: a run survives restarts and crashed containers.

The image is built first; with COSTADA_IMAGE=given, `costada:0.1.0` has to be there.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

import pytest
from billing_server import BillingServer
from crash_runs import CAP, PRICE_IN, PRICE_OUT, Provider
from fakes import toy_folder
from served_runs import TOKEN, begun, check_ledger, check_result, ended, status_of, wait_until

ROOT = Path(__file__).parents[2]
PASSWORD = "the-password"
BUDGET = 0.4
MAX_BUDGET = 20
"""Dollars of a run, and of all runs, which is the default of `compose.yaml`."""

ANSWER_SECONDS = 0.5
CALLS_BEFORE_A_KILL = 6
BUILD_SECONDS = 1800
CRASH = """
import os
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) not in (1, os.getpid()):
        os.kill(int(name), 9)
"""
"""Kills all processes of a container but its init, which ends with them; Docker restarts it."""


def answer_of(*words):
    """What the engine prints; empty if it fails."""
    if shutil.which("docker") is None:
        return ""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=60)
    return done.stdout.strip() if done.returncode == 0 else ""


BRIDGE = answer_of("network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Subnet}}")
HOW_TO_INSTALL = "apt-get install docker.io docker-compose-v2, then start the engine"
pytestmark = [
    pytest.mark.timeout(BUILD_SECONDS + 900),
    pytest.mark.cluster,
    pytest.mark.skipif(not BRIDGE, reason=f"no engine with a bridge network: {HOW_TO_INSTALL}"),
    pytest.mark.skipif(not answer_of("compose", "version"), reason=HOW_TO_INSTALL),
]


@dataclass(frozen=True)
class Deployment:
    """A project of `docker compose`."""

    name: str
    address: str
    environment: dict[str, str]

    def compose(self, *words, seconds=300):
        done = subprocess.run(
            ["docker", "compose", "--project-name", self.name, *words],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def containers(self, service):
        return self.compose("ps", "--quiet", service).split()

    def crash(self, service):
        for each in self.containers(service):
            answer_of("exec", each, "python", "-c", CRASH)

    def logs(self):
        return self.compose("logs", "--tail", "40")

    def await_health(self):
        wait_until(lambda: status_of(f"{self.address}/ready") == 200, self.logs)

    def database(self):
        """Address of the database for this machine, to which it is not published."""
        (container,) = self.containers("postgres")
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        place = answer_of("inspect", container, "--format", form)
        return f"postgresql://costada:{PASSWORD}@{place}/costada"


class SlowProvider(Provider):
    """Leaves time to stop containers during a run."""

    def answer(self, body):
        time.sleep(ANSWER_SECONDS)
        return super().answer(body)


@pytest.fixture
def provider():
    return SlowProvider()


@pytest.fixture
def deployment(tmp_path, provider):
    """All services, with a server beside them that answers as the model's provider."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
    toy_folder(tmp_path)
    tmp_path.chmod(0o755)
    with BillingServer(default=provider.answer, host=str(ip_network(BRIDGE)[1])) as server:
        keys, settings = tmp_path / "keys.env", tmp_path / "settings.toml"
        keys.write_text(f"OPENAI_API_KEY=none\nOPENAI_BASE_URL={server.url}\n")
        settings.write_text(f'price = "{PRICE_IN},{PRICE_OUT}"\nmax_tokens = {CAP}\n')
        chosen = {
            "POSTGRES_PASSWORD": PASSWORD,
            "COSTADA_MCP_TOKEN": TOKEN,
            "COSTADA_MODEL": "openai:stand-in",
            "COSTADA_ENV_FILE": str(keys),
            "COSTADA_SETTINGS": str(settings),
            "COSTADA_PROBLEMS": "/problems/toy",
            "COSTADA_PROBLEM_FOLDERS": str(tmp_path),
            "COSTADA_PORT": str(port),
        }
        made = Deployment(
            f"costada-test-{port}", f"http://127.0.0.1:{port}", {**os.environ, **chosen}
        )
        if os.environ.get("COSTADA_IMAGE") != "given":
            made.compose("build", seconds=BUILD_SECONDS)
        try:
            made.compose("up", "--detach")
            yield made
        finally:
            made.compose("down", "--volumes")


def test_a_run_survives_restarts_and_crashes_of_all_containers(deployment, provider):
    def await_calls():
        wanted = provider.billed.total() + CALLS_BEFORE_A_KILL
        wait_until(lambda: provider.billed.total() >= wanted, deployment.logs)

    deployment.await_health()
    assert status_of(f"{deployment.address}/mcp") == 401
    assert "sandbox: " in deployment.compose("logs", "mcp")
    run = asyncio.run(begun(deployment.address, BUDGET))
    await_calls()
    deployment.compose("restart")
    await_calls()
    for service in ("mcp", "worker", "scheduler"):
        deployment.crash(service)
    await_calls()
    deployment.compose("kill", "postgres")
    deployment.compose("up", "--detach")
    await_calls()
    deployment.await_health()
    status, best = asyncio.run(ended(deployment.address, run))
    check_result(status, best)
    check_ledger(deployment.database(), run, status, provider, MAX_BUDGET)

    deployment.compose("down")
    deployment.compose("up", "--detach")
    deployment.await_health()
    assert asyncio.run(ended(deployment.address, run)) == (status, best)
    check_ledger(deployment.database(), run, status, provider, MAX_BUDGET)
