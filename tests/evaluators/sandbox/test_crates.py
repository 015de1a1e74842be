"""Cargo builds with the crates that it has downloaded, without a network."""

import pytest
from needed_programs import needs

from costada.evaluators.folder_files import EvaluatorFile
from costada.evaluators.sandbox.candidate_runs import run_evaluator
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.toolchains import cargo_files

pytestmark = [pytest.mark.process, needs("cargo")]

LIMITS = Limits(wall_seconds=60, processes=64, memory_mb=4096)
EVALUATOR = """
import os, subprocess, tempfile
from pathlib import Path
MANIFEST = '[package]\\nname = "asked"\\nversion = "0.1.0"\\n[dependencies]\\ntiny = "1"\\n'
def evaluate(path):
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["cargo", "init", "-q", "--name", "asked", place], check=True)
        Path(place, "Cargo.toml").write_text(MANIFEST)
        Path(place, "src/main.rs").write_text(Path(path).read_text())
        subprocess.run(["cargo", "build", "-q"], cwd=place, check=True)
        said = subprocess.check_output([place + "/target/debug/asked"], text=True)
    try:
        Path(os.environ["CARGO_HOME"], "credentials.toml").read_text()
    except OSError:
        return {"number": float(said)}
"""
CONFIG = """
[source.crates-io]
replace-with = "downloaded"
[source.downloaded]
directory = "{home}/registry/downloaded"
"""


@pytest.fixture
def cargo_home(tmp_path, monkeypatch):
    """A home of Cargo that holds one crate, as if downloaded, and a secret."""
    home = tmp_path / "cargo"
    crate = home / "registry/downloaded/tiny"
    (crate / "src").mkdir(parents=True)
    (crate / "Cargo.toml").write_text('[package]\nname = "tiny"\nversion = "1.0.0"\n')
    (crate / "src/lib.rs").write_text("pub fn number() -> u32 { 41 }\n")
    (crate / ".cargo-checksum.json").write_text('{"files": {}, "package": null}')
    (home / "config.toml").write_text(CONFIG.format(home=home))
    (home / "credentials.toml").write_text("secret")
    monkeypatch.setenv("CARGO_HOME", str(home))
    return home


def test_a_build_uses_downloaded_crates_and_reads_no_credentials(confined, cargo_home, tmp_path):
    folder = tmp_path / "problem"
    folder.mkdir()
    (folder / "evaluator.py").write_text(EVALUATOR)
    evaluator = EvaluatorFile(folder, folder / "evaluator.py")
    source = 'fn main() { println!("{}", tiny::number()); }\n'
    result = run_evaluator(source, evaluator, LIMITS, confined, (), file_name="a.rs")
    assert result.error is None
    assert result.output["metrics"]["number"] == 41


@pytest.mark.parametrize(
    "secret", ['[registry]\ntoken = "x"\n', '[http]\nproxy = "x"\n', "[", "\0"]
)
def test_a_configuration_that_may_hold_a_secret_hides_all_files(cargo_home, secret):
    assert cargo_files() == [f"{cargo_home}/registry", f"{cargo_home}/config.toml"]
    (cargo_home / "config.toml").write_text(secret)
    assert cargo_files() == []
