"""What the packages and the settings of a folder from somebody else cannot do."""

import io
import os
import re
import socket
import sys
import tarfile
from hashlib import sha256
from importlib.metadata import distributions

import pytest
from made_wheels import write_wheel

from costada.evaluators.environment import environment_folder, interpreter_of
from costada.evaluators.folders import load_folder
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.plugins.folders.installation import make_environment

pytestmark = pytest.mark.process

if not sys.platform.startswith("linux"):
    pytest.skip("what the sandbox needs differs here", allow_module_level=True)

NEEDED = "needed-package<2\n"


@pytest.fixture
def folder(needing_folder):
    return needing_folder


@pytest.fixture(params=[Layer.LANDLOCK, Layer.BUBBLEWRAP])
def layer(request):
    try:
        return chosen_layer(request.param)
    except ValueError as error:
        pytest.skip(f"install {request.param.value}: {error}")


@pytest.fixture
def own_wheels(tmp_path, wheels, monkeypatch):
    """A folder where uv looks as well, for wheels of one test."""
    place = tmp_path / "own-wheels"
    place.mkdir()
    monkeypatch.setenv("UV_FIND_LINKS", f"{wheels},{place}")
    return place


def installed(folder):
    """Versions of the packages in the environment of a folder."""
    libraries = map(str, environment_folder(folder).glob("lib/*/site-packages"))
    return {each.name: each.version for each in distributions(path=list(libraries))}


def write_sdist(place, backend):
    """A package without a wheel, whose build runs `backend`."""
    project = (
        '[project]\nname = "built-package"\nversion = "1.0"\n'
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    about = "Metadata-Version: 2.1\nName: built-package\nVersion: 1.0\n"
    with tarfile.open(place / "built_package-1.0.tar.gz", "w:gz") as sdist:
        for name, text in {
            "pyproject.toml": project,
            "backend.py": backend,
            "PKG-INFO": about,
        }.items():
            entry = tarfile.TarInfo(f"built_package-1.0/{name}")
            entry.size = len(text.encode())
            sdist.addfile(entry, io.BytesIO(text.encode()))


@pytest.mark.parametrize("name", ["uv.toml", "pyproject.toml"])
@pytest.mark.parametrize("level", [0, 1])
def test_settings_of_uv_in_the_folder_or_above_say_nothing(folder, invoke, name, level):
    place = folder if level == 0 else folder.parent
    (folder / "given").mkdir()
    write_wheel(folder / "given", "needed_package", "1.9", {"needed_module.py": "VALUE = 0.5\n"})
    table = "pip" if name == "uv.toml" else "tool.uv.pip"
    (place / name).write_text(f'[{table}]\nfind-links = ["{folder}/given"]\n')
    (folder / "requirements.txt").write_text(NEEDED)
    prepared = invoke("prepare", folder)
    assert (prepared.exit_code, prepared.stderr) == (0, "")
    assert installed(folder)["needed_package"] == "1.0"


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("--index-url https://example.org/simple", "is an option of the installer"),
        ("-i https://example.org/simple", "is an option of the installer"),
        ("--extra-index-url=https://example.org/${OPENAI_API_KEY}", "is an option of the inst"),
        ("--find-links ./given", "is an option of the installer"),
        ("-f given", "is an option of the installer"),
        ("-e .", "is an option of the installer"),
        ("--no-binary :all:", "is an option of the installer"),
        ("-c limits.txt", "is an option of the installer"),
        ("needed-package @ https://example.org/needed.whl", "names an address"),
        ("https://example.org/needed_package-1.0-py3-none-any.whl", "names an address"),
        ("git+https://example.org/needed.git", "names an address"),
        ("file:///etc", "names an address"),
        ("needed-package --config-settings a=b", "is not the name of a package with versions"),
        ("./given", "is not the name of a package with versions"),
        ("given.tar.gz", "is not the name of a package"),
        ("../elsewhere-1.0-py3-none-any.whl", "outside of"),
        ("linked-1.0-py3-none-any.whl", "leads to .*, outside of"),
        ("absent-1.0-py3-none-any.whl", "is not there"),
        ("inner-1.0-py3-none-any.whl", "is not the name of a package"),
        ("-r ../others.txt", "cannot be read: .*outside of"),
        ("-r linked.txt", "cannot be read: .*leads to .*outside of"),
        ("-r absent.txt", "cannot be read: .*No such file"),
    ],
)
def test_lines_that_say_where_packages_come_from_are_refused(folder, invoke, line, fault):
    write_wheel(folder.parent, "elsewhere", "1.0", {"elsewhere.py": ""})
    wheel = "elsewhere-1.0-py3-none-any.whl"
    (folder / "linked-1.0-py3-none-any.whl").symlink_to(folder.parent / wheel)
    odd = "needed_package\n#-1.0-py3-none-any.whl"  # would be two lines for uv
    (folder / odd).write_bytes((folder.parent / wheel).read_bytes())
    (folder / "inner-1.0-py3-none-any.whl").symlink_to(odd)
    (folder.parent / "others.txt").write_text("elsewhere")
    (folder / "linked.txt").symlink_to("../others.txt")
    (folder / "requirements.txt").write_text(f"{NEEDED}\n{line}\n")
    prepared = invoke("prepare", folder)
    assert prepared.exit_code == 2
    assert "requirements.txt, line 3:" in prepared.stderr or "cannot be read" in prepared.stderr
    assert re.search(fault, prepared.stderr), prepared.stderr
    assert not environment_folder(folder).exists()


def test_requirements_beside_others_with_hashes_and_over_two_lines_are_installed(
    folder, wheels, invoke
):
    [wheel] = wheels.glob("needed_package-1.0*")
    digest = sha256(wheel.read_bytes()).hexdigest()
    (folder / "requirements.txt").write_text("-r lists/more.txt  # of this folder\n")
    (folder / "lists").mkdir()
    (folder / "lists" / "more.txt").write_text(
        f"needed-package==1.0 \\\n    --hash=sha256:{digest}\nabsent; sys_platform == 'none'\n"
    )
    assert invoke("prepare", folder).exit_code == 0
    assert installed(folder)["needed_package"] == "1.0"
    (folder / "lists" / "more.txt").write_text(f"needed-package==2.0 --hash=sha256:{digest}\n")
    changed = invoke("prepare", folder)
    assert changed.exit_code == 2
    assert "ash mismatch" in changed.stderr


def test_a_package_without_a_wheel_is_not_built_unless_that_is_allowed(
    folder, own_wheels, tmp_path, invoke
):
    write_sdist(own_wheels, f"open({str(tmp_path / 'built')!r}, 'w')\n")
    refused = invoke("prepare", folder, "--with", "built-package")
    assert refused.exit_code == 2
    assert "Only wheels are installed; with --allow-builds, other packages" in refused.stderr
    assert not (tmp_path / "built").exists()


BACKEND = """
import os, socket, zipfile
def attempt(action):
    try:
        return repr(action())
    except BaseException as error:
        return type(error).__name__
def connect():
    found = socket.socket(socket.AF_UNIX)
    found.connect(PLACE + "/socket")
ABOUT = "Metadata-Version: 2.1\\nName: built-package\\nVersion: 1.0\\n"
KIND = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
FOUND = dict(
    read=attempt(lambda: open(PLACE + "/secret").read()),
    listed=attempt(lambda: os.listdir(PLACE)),
    written=attempt(lambda: open(PLACE + "/written", "w")),
    connected=attempt(connect),
    variables=sorted(set(os.environ) & {"OPENAI_API_KEY", "SSH_AUTH_SOCK"}),
    environment=attempt(lambda: open(f"/proc/{PARENT}/environ").read()),
)
attempt(lambda: os.chmod(PLACE + "/secret", 0o777))
if attempt(os.fork) == "0":
    import time
    os.setsid()
    os.closerange(0, 1000)
    time.sleep(600)
def build_wheel(folder, settings=None, metadata=None):
    name = "built_package-1.0-py3-none-any.whl"
    about = "built_package-1.0.dist-info/"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("needed_module.py", f"VALUE = 0.75\\nFOUND = {FOUND!r}\\n")
        wheel.writestr(about + "METADATA", ABOUT)
        wheel.writestr(about + "WHEEL", KIND)
        wheel.writestr(about + "RECORD", "")
    return name
"""


def test_a_build_runs_in_the_sandbox(folder, own_wheels, tmp_path, monkeypatch, invoke):
    place = tmp_path / "home"
    place.mkdir()
    (place / "secret").write_text("CANARY")
    (place / "secret").chmod(0o600)
    monkeypatch.setenv("OPENAI_API_KEY", "CANARY")
    monkeypatch.setenv("UV_PUBLISH_TOKEN", "CANARY")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(place / "socket"))
    write_sdist(own_wheels, f"PLACE, PARENT = {str(place)!r}, {os.getpid()}\n{BACKEND}")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place / "socket"))
        listening.listen()
        prepared = invoke("prepare", folder, "--with", "built-package", "--allow-builds")
    assert (prepared.exit_code, prepared.stderr) == (0, "")
    [module] = environment_folder(folder).glob("lib/*/site-packages/needed_module.py")
    known = {}
    exec(module.read_text(), known)
    refused = known["FOUND"]
    assert refused.pop("variables") == []
    assert refused.pop("environment") in ("PermissionError", "FileNotFoundError")
    assert refused.pop("connected") == "OSError"
    assert set(refused.values()) <= {"PermissionError", "OSError"}
    assert (place / "secret").stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(place)) == ["secret", "socket"]
    evaluation = load_folder(folder)
    assert evaluation.evaluate_program(evaluation.start).score == 0.75


def test_no_code_of_packages_runs_before_the_confinement(
    folder, own_wheels, tmp_path, layer, invoke
):
    mark = f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__)"
    guarded = f"try:\n    {mark}\nexcept OSError:\n    pass\n"
    files = {
        "aaa_first.pth": f"import os; {mark}\n",
        "sitecustomize.py": guarded,
        "usercustomize.py": guarded,
        "needed_module.py": f"{guarded}VALUE = 0.5\n",
        "landlockpy.py": f"{guarded}def supported(): return False\n",
        "pyseccomp.py": f"{guarded}raise ImportError\n",
    }
    write_wheel(own_wheels, "evil_package", "1.0", files)
    (folder / "problem.toml").write_text(
        f'sandbox = "{layer.value}"\npreload = ["needed_module"]\n'
    )
    (folder / "requirements.txt").write_text("evil-package\n")
    (folder / "evaluator.py").write_text(
        "import needed_module, builtins, sys, socket\n"
        "def evaluate(path):\n"
        "    try: secret = open(SECRET).read()\n"
        "    except OSError: secret = 'refused'\n"
        "    try: socket.socket(); secret += ' and a socket'\n"
        "    except OSError: pass\n"
        "    names = [name for name in ('exit', 'quit', 'help') if hasattr(builtins, name)]\n"
        "    return {'combined_score': needed_module.VALUE, 'secret': secret, 'names': names,\n"
        "            'prefix': sys.prefix}\n"
    )
    text = (folder / "evaluator.py").read_text()
    (folder / "evaluator.py").write_text(text.replace("SECRET", repr(str(tmp_path / "secret"))))
    (tmp_path / "secret").write_text("CANARY")
    for _ in range(2):  # the second time, the packages are there when uv starts
        prepared = invoke("prepare", folder, "--with", "evil-package")
        assert prepared.exit_code == 0, prepared.stderr
    problem = load_folder(folder)
    evaluation = problem.evaluate_program(problem.start)
    assert evaluation.score == 0.5, evaluation
    assert evaluation.artifacts["secret"] == "refused"
    assert evaluation.artifacts["names"] == "exit\nquit\nhelp"
    assert evaluation.artifacts["prefix"] == str(environment_folder(folder).resolve())
    assert not (tmp_path / "ran").exists()


def test_a_package_that_replaces_what_starts_the_environment_is_refused(
    folder, own_wheels, tmp_path, invoke
):
    write_wheel(own_wheels, "evil", "1.0", {"evil-1.0.data/data/pyvenv.cfg": "home = /evil\n"})
    refused = invoke("prepare", folder, "--with", "evil")
    assert refused.exit_code == 2
    assert "a package replaced the Python of" in refused.stderr
    assert not environment_folder(folder).exists()
    make_environment(folder, [], ["needed-package"])
    place = environment_folder(folder)
    settings = (place / "pyvenv.cfg").read_text()
    (place / "pyvenv.cfg").write_text(f"home = {tmp_path}\n")
    with pytest.raises(ValueError, match="has no working Python; remove it"):
        interpreter_of(folder)
    (place / "pyvenv.cfg").write_text(settings)
    program = (place / "bin" / "python").readlink()
    (place / "bin" / "python").unlink()
    (place / "bin" / "python").write_text(f"#!/bin/sh\nexec {program}\n")
    (place / "bin" / "python").chmod(0o755)
    with pytest.raises(ValueError, match="has no working Python; remove it"):
        load_folder(folder)
