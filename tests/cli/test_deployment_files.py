"""The files of a deployment agree with the rest: locked versions, and options of `costada mcp`."""

import re
import subprocess
import sys

import pytest
import yaml
from doc_blocks import ROOT, check_commands

from costada.cli.setting_options import read_settings

pytestmark = pytest.mark.process

PIN = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)
NEEDED = (
    *("distributed", "mcp", "psycopg", "psycopg-binary", "langgraph-checkpoint-postgres"),
    "setuptools",
)


def pins(path):
    return set(PIN.findall((ROOT / path).read_text()))


def test_an_image_has_the_locked_versions_by_their_hashes():
    every, image = pins("requirements.lock"), pins("deploy/requirements.lock")
    assert image <= every
    assert set(NEEDED) <= {name for name, _ in image}
    text = (ROOT / "deploy" / "requirements.lock").read_text()
    requirements = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert len(requirements) == len(image)
    assert all("--hash=sha256:" in each for each in requirements)


def test_base_images_are_named_by_digest(services):
    text = (ROOT / "Dockerfile").read_text()
    first, *others = re.findall("^FROM (.+)", text, re.MULTILINE)
    assert [each.split()[0] for each in others] == ["base"] * 2
    for each in (first.removesuffix(" AS base"), services["postgres"]["image"]):
        assert re.search(r":-[\w.-]+:[\w.-]+@sha256:[0-9a-f]{64}}$", each)


COMPOSED, SERVERS = ("certificates", "postgres", "scheduler", "worker"), ("mcp", "queue")
"""Services of `compose.yaml`; the image has the health check of the servers."""


@pytest.fixture
def services():
    return yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]


@pytest.mark.parametrize("server", ["mcp", "queue"])
def test_the_composed_servers_are_started_with_options_that_exist(services, server):
    words = (word.partition("=")[0] for word in services[server]["command"])
    check_commands(" ".join(["costada", *words]))


def test_each_composed_service_has_a_health_check_and_takes_secrets_from_the_environment(services):
    assert set(services) == {*COMPOSED, *SERVERS}
    image = (ROOT / "Dockerfile").read_text()
    assert "/live" in image.partition("HEALTHCHECK")[2]
    assert all("healthcheck" in services[name] for name in COMPOSED)
    assert services["queue"]["profiles"] == ["queue"]
    secrets = {
        name: value
        for each in services.values()
        for name, value in each.get("environment", {}).items()
        if re.search("PASSWORD|TOKEN|KEY", name)
    }
    secrets = {name: value for name, value in secrets.items() if not name.startswith("DASK")}
    assert len(secrets) == 3
    assert all(value.startswith("${") for value in secrets.values())
    assert [each["path"] for each in services["mcp"]["env_file"]] == [
        "${COSTADA_ENV_FILE:-keys.env}"
    ]
    assert "*.env*" in (ROOT / ".dockerignore").read_text().splitlines()
    assert services["worker"]["deploy"]["replicas"] == 2
    assert all("ports" not in each for name, each in services.items() if name != "mcp")


def test_the_composed_server_reads_its_settings_from_a_file_that_is_there(services):
    mounted = [each.rsplit(":", 2) for each in services["mcp"]["volumes"] if "SETTINGS" in each]
    assert [each[1:] for each in mounted] == [["/settings.toml", "ro"]]
    default = re.search(r":-(.+)}", mounted[0][0])[1]
    assert "--config=/settings.toml" in services["mcp"]["command"]
    assert read_settings({}, [], ROOT / default) == {}


def test_what_runs_the_image_has_limits_and_writes_nowhere_but_into_its_volumes(services):
    own = [each for each in services.values() if each.get("image", "").startswith("costada:")]
    assert len(own) == 5
    assert all(each["read_only"] and each["mem_limit"] and each["pids_limit"] for each in own)
    assert all(
        each["networks"] == ["inside"] for each in (services["worker"], services["scheduler"])
    )
    assert services["worker"]["entrypoint"][2].startswith("tls://")
    for each in ("scheduler", "worker", *SERVERS):
        assert services[each]["environment"]["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "true"


def test_certificates_are_made_in_a_folder_that_is_not_there_yet(tmp_path):
    folder = tmp_path / "new" / "certificates"
    command = [sys.executable, ROOT / "deploy" / "make_certificates.py", folder]
    subprocess.run(command, check=True, timeout=60)
    assert {each.name for each in folder.iterdir()} == {"cluster.pem", "cluster.key"}
    assert (folder / "cluster.key").stat().st_mode & 0o077 == 0
