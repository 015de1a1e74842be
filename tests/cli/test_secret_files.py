"""A secret may be in a file that `NAME_FILE` names."""

import json
import os
import subprocess
import sys

import pytest

from costada.cli.secret_files import read_secret_files


@pytest.fixture
def secret(tmp_path, monkeypatch):
    """Put a secret into a file of a variable; the environment is restored after the test."""

    def put(name, text):
        file = tmp_path / name
        file.write_text(text)
        monkeypatch.setenv(name, "")  # which counts as none
        monkeypatch.setenv(f"{name}_FILE", str(file))
        return file

    return put


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "MY_OWN_API_KEY", "COSTADA_MCP_TOKEN"])
def test_a_secret_is_what_its_file_holds(name, secret):
    secret(name, "sk-1\n")
    read_secret_files()
    assert os.environ[name] == "sk-1"


def test_other_variables_that_end_so_name_files_of_others(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "missing"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing"))
    read_secret_files()


def test_what_is_no_secret_is_refused(secret, monkeypatch):
    file = secret("OPENAI_API_KEY", "  \n")
    with pytest.raises(ValueError, match="OPENAI_API_KEY_FILE: got an empty file"):
        read_secret_files()
    file.write_text("k" * 10_001)
    with pytest.raises(ValueError, match="OPENAI_API_KEY_FILE: got more than 10,000 characters"):
        read_secret_files()
    file.unlink()
    with pytest.raises(ValueError, match=r"OPENAI_API_KEY_FILE: .* cannot be read"):
        read_secret_files()
    monkeypatch.setenv("OPENAI_API_KEY", "sk-2")
    with pytest.raises(ValueError, match="got a file beside OPENAI_API_KEY"):
        read_secret_files()


@pytest.mark.process
def test_a_command_takes_its_key_from_a_file(secret):
    secret("OPENAI_API_KEY", "sk-of-a-file")
    words = sys.executable, "-m", "costada", "doctor", "--json"
    done = subprocess.run(words, capture_output=True, text=True)
    assert json.loads(done.stdout)["keys"]["OPENAI_API_KEY"] == "set", done.stderr
    assert "sk-of-a-file" not in done.stdout + done.stderr
