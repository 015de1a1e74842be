"""No command prints any part of a password, whatever the address around it looks like."""

import pytest

SECRET = "S3cr"
PORT = "127.0.0.1:1"
ADDRESSES = [
    f"postgres://u:p@{SECRET}@{PORT}/d",
    f"postgresql://u:p@x/{SECRET}@{PORT}/d",
    f"postgresql://u:p/{SECRET}@{PORT}/d",
    f"postgresql://u:{SECRET} {SECRET}@{PORT}/d",
    f"postgresql://u:{SECRET}?{SECRET}@{PORT}/d",
    f"postgresql://u:p#{SECRET}@{PORT}/d",
    f"postgresql://u:{SECRET}@{PORT}/d",
    f"postgresql://u:{SECRET}@127.0.0.1:none/d",
    f"postgresql://u@{PORT}/d?password={SECRET}",
    f"postgresql://u@{PORT}/d?passw%6Frd={SECRET}&connect_timeout=1",
    f"postgresql://u@{PORT}/d?sslpassword={SECRET}&unknown=1",
    f"postgres:u:{SECRET}@{PORT}/d",
    f"host=127.0.0.1 port=1 password={SECRET} dbname=d",
    f"host=127.0.0.1 port=1 password = 'a {SECRET}' dbname=d",
    f"host=127.0.0.1 port=1 password='it\\'s {SECRET}'",
    f"https://u:{SECRET}@{PORT}/v1",
    f"https://{SECRET}@{PORT}/v1",
    f"https://{PORT}/v1?api_key={SECRET}",
    f"dask://u:{SECRET}@{PORT}",
    rf"password=a\ {SECRET} host=127.0.0.1",
]
SWEEP = ("sweep", "--problems", "circle_packing", "--methods", "uniform", "--out", "out")
PLACES = [
    ("resume", None, "--longest-pause", 0),
    ("trace",),
    ("report",),
    ("export",),
    ("steer", None, "idea"),
    ("submit", None, "file"),
    ("fork", None, "--at", 1, "--out", "fork"),
    ("diff", None, "1"),
    ("watch",),
    ("runs",),
    ("compare",),
    ("check",),
    ("run",),
    ("run", "circle_packing", "--out"),
    ("run", "circle_packing", "--out", "out", "--store"),
    ("run", "circle_packing", "--out", "out", "--purse"),
    ("run", "circle_packing", "--model", "openai:m", "--price", "1,1", "--base-url"),
    ("run", "circle_packing", "--evaluate-on"),
    (*SWEEP, "--store"),
    (*SWEEP, "--total", 1, "--purse"),
    (*SWEEP, "--on"),
    ("mcp", "--max-budget", 1, "--store"),
    ("mcp", "--max-budget", 1, "--purse"),
    ("gateway", "--journal", "journal", "--upstream"),
    ("forecast", "circle_packing", "--base-url"),
    ("resume", "run", "--seed", 1),
    ("list",),
    (),
]


def words_of(place, address):
    return [address if word is None else word for word in place] + [address] * (None not in place)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: " ".join(map(str, place)))
def test_a_command_prints_no_part_of_a_password(place, invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    for number, each in enumerate(ADDRESSES, PLACES.index(place)):
        address = each + "#run" * (number % 2)
        result = invoke(*words_of(place, address))
        assert result.exit_code in (1, 2), (address, result.output)
        assert SECRET not in result.output + result.stderr, (address, result.output)
        assert result.exception is None or isinstance(result.exception, SystemExit)
