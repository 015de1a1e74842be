"""The chart in `deploy/helm/costada`: what it renders confines its pods and holds no secret."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from doc_blocks import check_commands

from costada.agents.teams import Team, read_teams
from costada.cli.serve_command import SAVE_SECONDS

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "costada"
IMAGE = {"repository": "registry.local/costada", "digest": "sha256:" + 64 * "1"}
EVERYTHING = {
    "apiKeys": ["OPENAI_API_KEY", "MY_API_KEY"],
    "image": {"pullSecrets": ["registry"]},
    "networkPolicy": {"clients": [{"namespaceSelector": {"matchLabels": {"team": "a"}}}]},
    "queue": {
        "enabled": True,
        "teams": {
            "research": {"budget": 5e6, "at_once": 40},
            "b-2": {"budget": 0.5, "priority": -1},
        },
        "environment": {"COSTADA_LOG": "json"},
        "problemFolders": {"persistentVolumeClaim": {"claimName": "problems"}},
    },
    "server": {
        "environment": {"COSTADA_LOG": "json"},
        "problemFolders": {"persistentVolumeClaim": {"claimName": "problems"}},
        "settings": 'price = "1,2"\n',
    },
    "worker": {
        "reachesServer": True,
        "nodeSelector": {"pool": "evaluation"},
        "tolerations": [{"key": "pool", "operator": "Exists"}],
    },
}
"""Values that use each branch of the templates, but for the object of the Prometheus operator."""

pytestmark = pytest.mark.process


def needs(program):
    reason = f"{program} is not installed: .ci/helm FOLDER, and FOLDER on PATH"
    return pytest.mark.skipif(shutil.which(program) is None, reason=reason)


def helm(verb, *words, values=None):
    """`helm VERB` of the chart with an image and further values."""
    sets = [word for name, each in IMAGE.items() for word in ("--set", f"image.{name}={each}")]
    return subprocess.run(
        ["helm", *verb.split(), CHART, "--values", "-", *sets, *words],
        input=json.dumps(values or {}),
        capture_output=True,
        text=True,
        timeout=60,
    )


def rendered(values=None):
    done = helm("template release", values=values)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def of_kind(objects, kind):
    """Objects of a kind, by their component."""
    label = "app.kubernetes.io/component"
    return {each["metadata"]["labels"][label]: each for each in objects if each["kind"] == kind}


@pytest.fixture(params=[{}, EVERYTHING], ids=["by default", "with everything"])
def objects(request):
    return rendered(request.param)


def test_the_chart_has_the_version_of_the_package():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_a_schema_lists_each_value_and_no_other():
    def names(schema, definitions):
        schema = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        below = schema.get("properties", {})
        return {name: names(each, definitions) for name, each in below.items()}

    def check(values, listed):
        assert set(values) == set(listed)
        for name, each in values.items():
            if listed[name]:
                check(each, listed[name])

    schema = json.loads((CHART / "values.schema.json").read_text())
    listed = names(schema, schema["definitions"])
    listed.pop("global")  # which Helm adds
    check(yaml.safe_load((CHART / "values.yaml").read_text()), listed)


@needs("helm")
@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("image.digest=latest", "/image/digest"),
        ("image.tag=latest", "'tag'"),
        ("worker.replica=3", "'replica'"),
        ("worker.replicas=many", "/worker/replicas"),
        ("server.maxBudget=0", "/server/maxBudget"),
        ("scratch=much", "/scratch"),
        ("apiKeys={OPENAI_KEY}", "/apiKeys/0"),
        ("server.environment.OPENAI_API_KEY=sk-1", "'OPENAI_API_KEY'"),
        ("queue.enabled=true", "/queue/teams"),
        ("queue.teams.red.money=1", "'money'"),
        ("queue.jobs=0", "/queue/jobs"),
        ("queue.environment.OPENAI_API_KEY=sk-1", "'OPENAI_API_KEY'"),
        ("worker.resources.limits.memory=null", "'memory'"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(value, name):
    done = helm("template release", "--set", value)
    assert done.returncode != 0
    assert name in done.stderr


@needs("helm")
def test_an_image_is_required():
    done = subprocess.run(["helm", "template", CHART], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "/image/digest" in done.stderr


@needs("helm")
def test_pods_have_limits_and_no_rights(objects):
    deployments = of_kind(objects, "Deployment")
    assert set(deployments) - {"queue"} == {"server", "scheduler", "worker"}
    for each in deployments.values():
        pod = each["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        assert container["image"].endswith("@sha256:" + 64 * "1")
        assert set(container["resources"]["limits"]) == {"cpu", "memory"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert all("sizeLimit" in each["emptyDir"] for each in pod["volumes"] if "emptyDir" in each)
        assert not any("hostPath" in each for each in pod["volumes"])
        assert "livenessProbe" in container


@needs("helm")
def test_servers_are_alive_and_ready_by_their_paths_and_have_options_that_exist(objects):
    deployments = of_kind(objects, "Deployment")
    for component in {"server", "queue"} & {*deployments}:
        pod = deployments[component]["spec"]["template"]["spec"]
        (server,) = pod["containers"]
        assert server["livenessProbe"]["httpGet"]["path"] == "/live"
        assert server["readinessProbe"]["httpGet"]["path"] == "/ready"
        assert pod["terminationGracePeriodSeconds"] > SAVE_SECONDS
        check_commands(" ".join(["costada", *(each.partition("=")[0] for each in server["args"])]))


@needs("helm")
def test_servers_of_a_queue_are_there_on_request_with_their_teams(tmp_path):
    assert "queue" not in of_kind(rendered(), "Deployment")
    objects = rendered(EVERYTHING)
    file = tmp_path / "teams.toml"
    file.write_text(of_kind(objects, "ConfigMap")["queue"]["data"]["teams.toml"])
    expected = {"research": Team(budget=5e6, at_once=40), "b-2": Team(budget=0.5, priority=-1)}
    assert read_teams(file) == expected
    deployment = of_kind(objects, "Deployment")["queue"]
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    (secret,) = (each["secret"] for each in volumes if each["name"] == "secrets")
    keys = [each["key"] for each in secret["items"]]
    assert keys == ["COSTADA_STORE", "OPENAI_API_KEY", "MY_API_KEY"]


def edges(objects, direction):
    """Pods that policies let connect, as (from, to, port), and peers that are not of the chart."""
    peers, between, others = {"ingress": "from", "egress": "to"}[direction], set(), []
    for component, policy in of_kind(objects, "NetworkPolicy").items():
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        for rule in policy["spec"].get(direction, []):
            ports = [each["port"] for each in rule.get("ports", [{"port": "any"}])]
            for peer in rule.get(peers, ["anyone"]):
                if "podSelector" not in peer:
                    others += [(component, port) for port in ports]
                    continue
                pod = peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
                pair = (component, pod) if direction == "egress" else (pod, component)
                between |= {(*pair, port) for port in ports}
    return between, others


@needs("helm")
def test_workers_reach_only_the_scheduler_and_only_the_server_reaches_what_is_outside():
    objects = rendered()
    for component, policy in of_kind(objects, "NetworkPolicy").items():
        selected = policy["spec"]["podSelector"]["matchLabels"]
        pod = of_kind(objects, "Deployment")[component]["spec"]["template"]["metadata"]
        assert selected == pod["labels"]
    expected = {
        ("server", "scheduler", 8786),
        ("worker", "scheduler", 8786),
        ("scheduler", "worker", 8788),
        ("scheduler", "worker", 8789),
    }
    assert edges(objects, "egress") == (
        expected,
        [("server", 53), ("server", 53), ("server", 5432), ("server", 443)],
    )
    assert edges(objects, "ingress") == (expected, [])


@needs("helm")
def test_clients_and_workers_reach_the_server_only_where_values_say_so():
    objects = rendered(EVERYTHING)
    between, others = edges(objects, "ingress")
    assert others == [("server", 8000)]
    outgoing, outside = edges(objects, "egress")
    for each in ("server", "queue"):
        assert ("worker", each, "any") in between
        assert ("worker", each, "any") in outgoing
        assert (each, "scheduler", 8786) in between
        assert (each, "scheduler", 8786) in outgoing
        assert {port for component, port in outside if component == each} == {53, 5432, 443}
    assert of_kind(rendered({"networkPolicy": {"enabled": False}}), "NetworkPolicy") == {}


@needs("helm")
def test_workers_find_the_scheduler_without_dns(objects):
    pod = of_kind(objects, "Deployment")["worker"]["spec"]["template"]["spec"]
    name = of_kind(objects, "Service")["scheduler"]["metadata"]["name"]
    variable = name.upper().replace("-", "_") + "_SERVICE_HOST"
    assert f"tls://$({variable}):8786" in pod["containers"][0]["command"]
    assert pod["enableServiceLinks"]


@needs("helm")
def test_secrets_are_files_of_the_server_and_nowhere_in_clear_text(objects):
    assert of_kind(objects, "Secret") == {}
    for component, each in of_kind(objects, "Deployment").items():
        pod = each["spec"]["template"]["spec"]
        mounted = {
            each["secret"]["secretName"]: each["secret"]["defaultMode"]
            for each in pod["volumes"]
            if "secret" in each
        }
        secrets = {"costada": 0o440} if component in ("server", "queue") else {}
        assert mounted == {"costada-certificates": 0o440, **secrets}
        named = [
            each
            for each in pod["containers"][0]["env"]
            if re.search("KEY|TOKEN|STORE", each["name"]) and not each["name"].startswith("DASK")
        ]
        assert all(each["name"].endswith("_FILE") for each in named)
        assert all(each["value"].startswith("/secrets/") for each in named)
        assert bool(named) == (component in ("server", "queue"))


@needs("helm")
def test_prometheus_is_told_of_the_server_only_on_request():
    assert of_kind(rendered(), "ServiceMonitor") == {}
    objects = rendered({"serviceMonitor": {"enabled": True, "labels": {"team": "a"}}})
    monitor = of_kind(objects, "ServiceMonitor")["server"]
    assert monitor["metadata"]["labels"]["team"] == "a"
    service = of_kind(objects, "Service")["server"]
    labels = monitor["spec"]["selector"]["matchLabels"]
    assert labels.items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {each["name"] for each in service["spec"]["ports"]}
    assert endpoint["authorization"]["credentials"]["key"] == "COSTADA_MCP_TOKEN"


@needs("helm")
@needs("kubernetes-validate")
@pytest.mark.parametrize("version", ["1.25", "1.31", "1.37"])
def test_each_object_is_what_kubernetes_expects(version, objects, tmp_path):
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    command = ["kubernetes-validate", "--kubernetes-version", version, "--strict", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count(" passed for ") == len(objects)


@needs("helm")
def test_helm_finds_no_fault():
    done = helm("lint --strict")
    assert done.returncode == 0, done.stdout
