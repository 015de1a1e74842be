from typing import Any

from page_runs import settings, step, write_steps
from typer.testing import CliRunner

from costada.cli.main import app


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_report_writes_a_page_beside_the_run_and_prints_its_path(tmp_path):
    run = settings(tmp_path / "run")
    write_steps(run, [step(1)])
    result = invoke("report", run.path)
    assert result.exit_code == 0, result.output
    assert result.output == f"{run.path / 'report.html'}\n"
    assert (run.path / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")


def test_report_writes_where_it_is_told_to(tmp_path):
    run = settings(tmp_path / "run")
    write_steps(run, [step(1)])
    assert invoke("report", run.path, "--out", tmp_path / "page.html").exit_code == 0
    assert (tmp_path / "page.html").is_file()
    assert not (run.path / "report.html").exists()


def test_a_page_that_cannot_lie_where_it_is_told_to_is_refused_by_that_name(tmp_path):
    run = settings(tmp_path / "run")
    write_steps(run, [step(1)])
    before = sorted(tmp_path.rglob("*"))
    for out in (tmp_path, tmp_path / "missing" / "page.html"):
        result = invoke("report", run.path, "--out", out)
        assert result.exit_code == 2
        assert result.output.startswith(f"costada: {out}: ")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_without_a_run_is_refused_by_both_commands(tmp_path):
    for command in ("report", "watch"):
        result = invoke(command, tmp_path)
        assert result.exit_code == 2
        assert str(tmp_path) in result.output
        assert "Traceback" not in result.output


def test_a_taken_port_is_refused_in_one_line(tmp_path):
    import socket

    run = settings(tmp_path / "run")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = invoke("watch", run.path, "--port", taken.getsockname()[1])
    assert result.exit_code == 2
    assert "in use" in result.output
