"""The pods of the chart carry a run, where Docker runs their containers as the chart says.

It stands in for a cluster: users, rights, limits, files, variables, commands and probes are the
chart's; services and network policies are not. The image `costada:0.1.0` has to be there.
"""

import asyncio
import os
import re
import subprocess
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from served_runs import TOKEN, call, session_at, status_of, wait_until
from test_containers import HOW_TO_INSTALL, answer_of
from test_helm_chart import ROOT, needs, of_kind, rendered

from costada.store.run_store import RunStore

IMAGE = "costada:0.1.0"
BUDGET = 0.05
SCHEDULER = "release-costada-scheduler"
USER = 10001
MEGABYTES = {"Mi": 1, "Gi": 1024}

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    needs("helm"),
    pytest.mark.skipif(
        not answer_of("image", "inspect", IMAGE),
        reason=f"no image {IMAGE}: {HOW_TO_INSTALL}, and docker compose build",
    ),
]


class Pods:
    """Containers of the pods of a chart, on a network of their own."""

    def __init__(self, folder: Path, secrets: dict[str, dict[str, str]]) -> None:
        self.folder = folder
        self.secrets = secrets
        self.network = f"costada-test-{os.getpid()}"
        self.names: list[str] = []
        assert answer_of("network", "create", self.network)

    def start(self, deployment, objects, *more):
        """The name of the container of a pod of the deployment."""
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        name = f"{self.network}-{len(self.names)}"
        self.names.append(name)
        rights, limits = container["securityContext"], container["resources"]["limits"]
        assert rights["readOnlyRootFilesystem"]
        assert not rights["allowPrivilegeEscalation"]
        user = pod["securityContext"]
        amount, unit = re.fullmatch(r"(\d+)(Mi|Gi)", limits["memory"]).groups()
        words = [
            *("run", "--detach", "--name", name, "--network", self.network),
            *("--network-alias", deployment["metadata"]["name"], "--read-only"),
            *("--user", f"{user['runAsUser']}:{user['runAsGroup']}"),
            *("--cap-drop", *rights["capabilities"]["drop"]),
            *("--security-opt", "no-new-privileges", "--cpus", limits["cpu"]),
            *("--memory", f"{int(amount) * MEGABYTES[unit]}m", *more),
        ]
        for each in container["env"]:
            words += ["--env", f"{each['name']}={each['value']}"]
        volumes = {
            each["name"]: self.volume(f"{name}-{each['name']}", each, objects)
            for each in pod["volumes"]
        }
        for each in container["volumeMounts"]:
            place = volumes[each["name"]] / each.get("subPath", "")
            if not place.exists():
                place.mkdir()
                os.chown(place, -1, USER)
                place.chmod(0o2777)
            mode = ":ro" if each.get("readOnly") else ""
            words += ["--volume", f"{place}:{each['mountPath']}{mode}"]
        command, arguments = container.get("command", []), container.get("args", [])
        if command:
            words += ["--entrypoint", command[0]]
        variable = "$(" + SCHEDULER.upper().replace("-", "_") + "_SERVICE_HOST)"
        words += [
            IMAGE,
            *(each.replace(variable, SCHEDULER) for each in (*command[1:], *arguments)),
        ]
        done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return name

    def volume(self, name, volume, objects):
        """A folder of this machine with what a volume holds."""
        folder = self.folder / name
        folder.mkdir()
        texts, mode = {}, 0o2777
        if "secret" in volume:
            texts = self.secrets[volume["secret"]["secretName"]]
            mode = volume["secret"]["defaultMode"]
        elif "configMap" in volume:
            texts, mode = of_kind(objects, "ConfigMap")["server"]["data"], 0o644
        for key, text in texts.items():
            (folder / key).write_text(text)
            os.chown(folder / key, 0, USER)
            (folder / key).chmod(mode)
        os.chown(folder, 0, USER)
        folder.chmod(0o755 if texts else mode)
        return folder

    def is_alive(self, name, deployment):
        """Whether the command of the pod's liveness probe succeeds."""
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        probe = container["livenessProbe"]["exec"]["command"]
        return subprocess.run(["docker", "exec", name, *probe], capture_output=True).returncode == 0

    def logs(self):
        shown = [
            subprocess.run(["docker", "logs", "--tail", "20", each], capture_output=True, text=True)
            for each in self.names
        ]
        return "\n".join(each.stdout + each.stderr for each in shown)

    def close(self):
        for each in self.names:
            answer_of("rm", "--force", "--volumes", each)
        answer_of("network", "rm", self.network)


@pytest.fixture
def certificates(tmp_path):
    """Made as the documentation says."""
    text = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    command = re.search(r"^openssl req(?:.*\\\n)*.*", text, re.MULTILINE)[0]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path, capture_output=True)
    return {name: (tmp_path / name).read_text() for name in ("cluster.pem", "cluster.key")}


@pytest.fixture
def pods(tmp_path, certificates, postgres_address):
    database = conninfo_to_dict(postgres_address)["dbname"]
    store = f"postgresql://postgres:the-password@/{database}?host=/database"
    secret = {"COSTADA_STORE": store, "COSTADA_MCP_TOKEN": TOKEN}
    tmp_path.chmod(0o755)
    made = Pods(tmp_path, {"costada": secret, "costada-certificates": certificates})
    try:
        yield made
    finally:
        made.close()


async def result_of_a_run(address):
    async with session_at(address) as session:
        arguments = {"problem": "circle_packing", "budget": BUDGET, "seed": 2}
        run = (await call(session, "discover", **arguments))["run"]
        status = {"phase": "running"}
        while status["phase"] == "running":
            status = await call(session, "wait_for_run", run=run, seconds=5)
        return status


def test_pods_of_the_chart_carry_a_run(pods, postgres_address):
    socket = Path(str(conninfo_to_dict(postgres_address)["host"]))
    socket.chmod(0o755)
    objects = rendered()
    deployments = of_kind(objects, "Deployment")
    for component in ("scheduler", "worker"):
        name = pods.start(deployments[component], objects)
        wait_until(lambda name=name, of=component: pods.is_alive(name, deployments[of]), pods.logs)
    server = pods.start(deployments["server"], objects, "--volume", f"{socket}:/database")
    form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    address = f"http://{answer_of('inspect', server, '--format', form)}:8000"
    wait_until(lambda: status_of(f"{address}/ready") == 200, pods.logs)
    assert status_of(f"{address}/live") == 200
    assert status_of(f"{address}/mcp") == 401
    status = asyncio.run(result_of_a_run(address))
    assert status["phase"] == "finished", pods.logs()
    with RunStore.postgres(postgres_address, is_read_only=True) as store:
        assert store.run_ids()
    for name in pods.names:
        assert answer_of("exec", name, "id", "-u") == str(USER)
        assert not answer_of("exec", name, "touch", "/opt/costada/file")
    environment = answer_of("exec", server, "cat", "/proc/1/environ")
    assert TOKEN not in environment
