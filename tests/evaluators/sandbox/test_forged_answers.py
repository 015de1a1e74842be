"""What a candidate writes to the result pipe by itself is an answer, if it has the form of one."""

import json

import pytest
from sandbox_runs import AMPLE, run

from costada.evaluators.sandbox.codec import encode
from costada.evaluators.sandbox.layers import Layer

pytestmark = pytest.mark.process

TOO_MUCH = "malformed answer: more than was asked for"
FIND_PIPE = """
import fcntl, os
def is_for_answers(number):
    try: return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
    except OSError: return False
[PIPE] = [number for number in range(3, 256) if is_for_answers(number)]
def send(data):
    while data: data = data[os.write(PIPE, data):]
"""


def forge(data: bytes, layer=Layer.PROCESS, end="os._exit(0)"):
    """Run a candidate that writes data to the result pipe, and nothing else."""
    return run(f"{FIND_PIPE}\ndef f():\n    send({data!r})\n    {end}", layer)


def frame(message: bytes) -> bytes:
    return len(message).to_bytes(8, "big") + message


def with_header(header: object) -> bytes:
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return frame(len(text).to_bytes(8, "big") + text)


MALFORMED = {
    "less than a length": b"x",
    "a length of nothing": b"\xff" * 100,
    "an empty answer": frame(b""),
    "a list as header": with_header([]),
    "a pickle": frame(b"\x80\x04N."),
    "neither output nor error": frame(encode({"score": 1.0})),
    "output and error": frame(encode({"output": 1, "error": "x", "is_own_fault": True})),
    "an empty error": frame(encode({"error": "", "is_own_fault": True})),
    "two answers": frame(encode({"output": 1})) * 2,
    "an answer and a rest": frame(encode({"output": 1})) + b"x",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_forged_answer_is_refused(data):
    result = forge(data)
    assert result.error.startswith("malformed answer: ")
    assert len(result.error) < 4000
    assert result.output is None


def test_a_forged_answer_is_refused_in_each_layer(layer):
    assert forge(b"\0" * 100, layer).error.startswith("malformed answer: ")


def test_an_answer_of_the_right_form_is_an_answer(layer):
    assert forge(frame(encode({"output": [1.5]})), layer).output == [1.5]


def test_more_than_was_asked_for_is_refused():
    assert forge(frame(encode({"output": 1})), end="return 2").error == TOO_MUCH
    end = "os._exit = lambda status: send(b'more') or os.kill(os.getpid(), 9)"
    assert run(f"{FIND_PIPE}\ndef f():\n    {end}\n    return 1", Layer.PROCESS).error == TOO_MUCH
    flood = "os._exit = lambda status: send(b'\\xff' * 80_000_000)"
    result = run(f"{FIND_PIPE}\ndef f():\n    {flood}\n    return 1", Layer.PROCESS)
    assert result.output is None


def test_a_flood_of_empty_answers_is_stopped_at_once(layer):
    source = f"{FIND_PIPE}\ndef f():\n    while True: send(bytes(65536))"
    result = run(source, layer)
    assert result.error == TOO_MUCH
    assert result.seconds < AMPLE.wall_seconds / 2


def test_a_forged_error_is_cut():
    data = frame(encode({"error": "E" * 900_000, "is_own_fault": True}))
    assert forge(data).error == "E" * 8192


def test_a_text_that_no_file_takes_is_mended():
    header = b'{"value": {"dict": {"output": {"dict": {"\\ud800": "\\udfff"}}}}, "arrays": []}'
    assert forge(with_header(header)).output == {"?": "?"}


def test_an_error_may_not_steer_the_terminal():
    data = frame(encode({"error": "\x1b[2J", "is_own_fault": True}))
    assert forge(data).error == "\ufffd[2J"


@pytest.mark.parametrize("size", [2**63, 2**40])
def test_an_announced_size_takes_no_memory(size):
    result = forge(size.to_bytes(8, "big") + b"x" * 1000)
    assert result.error.startswith("malformed answer: ")
