"""A Dask cluster with certificates: who has none cannot connect."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from remote_engines import SCRIPTS, START_SECONDS, Processes, await_text

distributed = pytest.importorskip("distributed")

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.process


@pytest.fixture
def certificates(tmp_path):
    """The settings of Dask for those who have the certificate of `deploy/`."""
    words = sys.executable, ROOT / "deploy" / "make_certificates.py", tmp_path
    subprocess.run(words, check=True)
    before = (tmp_path / "cluster.pem").read_bytes()
    subprocess.run(words, check=True)  # a second start keeps it
    assert (tmp_path / "cluster.pem").read_bytes() == before
    assert (tmp_path / "cluster.key").stat().st_mode & 0o777 == 0o600
    tls = "DASK_DISTRIBUTED__COMM__TLS"
    files = {"CERT": str(tmp_path / "cluster.pem"), "KEY": str(tmp_path / "cluster.key")}
    own = {
        f"{tls}__{of}__{kind}": files[kind]
        for of in ("SCHEDULER", "WORKER", "CLIENT")
        for kind in files
    }
    return own | {
        f"{tls}__CA_FILE": files["CERT"],
        "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true",
    }


def test_only_who_has_the_certificate_evaluates_in_the_cluster(certificates, tmp_path, monkeypatch):
    def run(out):
        place = address.replace("tls://", "dask://")
        words = ("run", "circle_packing", "--budget", "0.02", "--evaluate-on", place, "--out", out)
        return subprocess.run([SCRIPTS / "costada", *words], capture_output=True, text=True)

    with ExitStack() as stack:
        processes = Processes(stack)
        file = tmp_path / "scheduler.json"
        options = "--protocol", "tls", "--host", "127.0.0.1", "--port", 0, "--no-dashboard"
        scheduler = processes.start(
            "dask", "scheduler", *options, "--scheduler-file", file, environment=certificates
        )
        address = json.loads(await_text(file, scheduler))["address"]
        assert address.startswith("tls://")
        local = "--local-directory", processes.folder("dask"), "--nthreads", 1, "--no-dashboard"
        processes.start("dask", "worker", address, *local, environment=certificates)
        pem, key = tmp_path / "cluster.pem", tmp_path / "cluster.key"
        known = {"tls_ca_file": str(pem), "tls_client_cert": str(pem), "tls_client_key": str(key)}
        security = distributed.Security(require_encryption=True, **known)
        with distributed.Client(address, security=security, timeout=START_SECONDS) as client:
            client.wait_for_workers(1, timeout=START_SECONDS)
        refused = run(tmp_path / "without")
        assert refused.returncode == 2
        assert "no Dask scheduler responds there" in refused.stderr
        for name, value in certificates.items():
            monkeypatch.setenv(name, value)
        done = run(tmp_path / "with")
        assert done.returncode == 0, done.stderr
        assert "the budget is used up" in done.stdout
