"""Candidates reach their models with ordinary clients, and nothing else."""

import os
import resource
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from models_of_candidates import ModelServer
from sandbox_runs import (
    AMPLE,
    LAYERS,
    PATIENCE_SECONDS,
    becomes_true,
    prepared_of,
    run,
    why_absent,
)

from costada.evaluators.folder_files import EvaluatorFile
from costada.evaluators.sandbox.candidate_results import results_of
from costada.evaluators.sandbox.candidate_runs import run_calls, run_evaluator, run_in_copy
from costada.evaluators.sandbox.commands import Commands, run_commands
from costada.evaluators.sandbox.execution import execute_in_any, request_for
from costada.evaluators.sandbox.inside.model_connections import IN_USE
from costada.evaluators.sandbox.inside.orders import HOME, REPOSITORY
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.model_channel import MAX_CONNECTIONS, MAX_OPENED
from costada.evaluators.sandbox.slot import SLOTS
from costada.evaluators.sandbox.slot_kind import Original, SlotKind
from costada.values.candidate import Program

pytestmark = pytest.mark.process

ASK = """
import json, os, socket, threading, time, urllib.request
def ask(text):
    body = json.dumps({"messages": [{"content": text}]}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=30) as response:
        return json.load(response)["choices"][0]["message"]["content"]
"""
CLIENTS = """
import asyncio, os
import httpx, openai
QUESTION = {"model": "agent", "messages": [{"role": "user", "content": "hello"}]}

def text_of(response):
    return response.json()["choices"][0]["message"]["content"]

def with_openai():
    return openai.OpenAI().chat.completions.create(**QUESTION).choices[0].message.content

def with_stream():
    pieces = openai.OpenAI().chat.completions.create(**QUESTION, stream=True)
    return "".join(piece.choices[0].delta.content or "" for piece in pieces)

async def with_async_openai():
    async with openai.AsyncOpenAI() as client:
        asked = [client.chat.completions.create(**QUESTION) for _ in range(MANY)]
        answers = await asyncio.gather(*asked)
    return " ".join({answer.choices[0].message.content for answer in answers})

def with_httpx():
    with httpx.Client(base_url=os.environ["OPENAI_BASE_URL"]) as client:
        return "".join(text_of(client.post("/chat/completions", json=QUESTION)) for _ in range(2))

async def with_async_httpx():
    async with httpx.AsyncClient(base_url=os.environ["OPENAI_BASE_URL"]) as client:
        return text_of(await client.post("/chat/completions", json=QUESTION))

def f():
    return [
        with_openai(), with_stream(), asyncio.run(with_async_openai()), with_httpx(),
        asyncio.run(with_async_httpx()),
    ]
"""
LANGCHAIN = """
import asyncio
from langchain_openai import ChatOpenAI
def f():
    model = ChatOpenAI(model="agent")
    pieces = [piece.text for piece in model.stream("hello")]
    return [model.invoke("hello").text, asyncio.run(model.ainvoke("hello")).text, "".join(pieces)]
"""
HELD = """
import os, stat
def f():
    kinds = []
    for fd in range(3, 256):
        try:
            kinds.append(stat.filemode(os.fstat(fd).st_mode)[0])
        except OSError:
            pass
    return kinds
"""


@pytest.fixture(params=LAYERS)
def each_layer(request):
    """Each layer of this machine that needs no container."""
    if reason := why_absent(request.param):
        pytest.skip(reason)
    return request.param


@pytest.fixture
def server():
    made = ModelServer()
    yield made
    made.close()


def ask_with(source, layer, connect, limits=AMPLE, **arguments):
    return run_calls(source, "f", [arguments], limits, layer, preload=(), connect=connect)[0]


@pytest.fixture
def evaluate(server, each_layer):
    """Run a program whose models the server stands for."""
    return lambda source, **options: ask_with(
        ASK + source, each_layer, server.connection_of("one"), **options
    )


def test_clients_of_openai_and_httpx_work_unchanged(server, layer):
    source = CLIENTS.replace("MANY", "30")
    result = ask_with(source, layer, server.connection_of("one"))
    assert result.error is None
    assert result.output == ["HELLO", "HELLO", "HELLO", "HELLOHELLO", "HELLO"]
    assert server.requests == [("one", "hello")] * (1 + 1 + 30 + 2 + 1)


@pytest.mark.parametrize(
    ("confined", "preload"),
    [(Layer.LANDLOCK, ()), (Layer.BUBBLEWRAP, ("langchain_openai",))],
    ids=["imported", "preloaded"],
    indirect=["confined"],
)
def test_langchain_works_unchanged(server, confined, preload):
    connect = server.connection_of("one")
    [result] = run_calls(LANGCHAIN, "f", [{}], AMPLE, confined, preload, connect=connect)
    assert result.error is None
    assert result.output == ["HELLO"] * 3


def test_an_evaluator_of_a_folder_asks_too_and_so_does_its_program(server, layer, tmp_path):
    text = (
        f"{ASK}import importlib.util\n"
        "def evaluate(path):\n"
        "    spec = importlib.util.spec_from_file_location('program', path)\n"
        "    spec.loader.exec_module(program := importlib.util.module_from_spec(spec))\n"
        "    return {'n': len(ask('four') + program.f())}"
    )
    (tmp_path / "evaluator.py").write_text(text)
    program = f"{ASK}def f(): return ask('three')"
    evaluator = EvaluatorFile(tmp_path, tmp_path / "evaluator.py")
    connect = server.connection_of("both")
    result = run_evaluator(program, evaluator, AMPLE, layer, (), connect=connect)
    assert result.error is None
    assert result.output["metrics"] == {"n": 9.0}
    assert server.requests == [("both", "four"), ("both", "three")]


def test_large_questions_and_answers_arrive_whole(evaluate):
    result = evaluate("def f():\n    text = 'ab' * 2_000_000\n    return ask(text) == text.upper()")
    assert result.output is True


def test_an_unread_stream_does_not_hold_up_another_connection(evaluate, server):
    source = """
def f():
    waiting = socket.create_connection(("127.0.0.1", 9))
    body = json.dumps({"messages": [{"content": "a" * 5_000_000}]}).encode()
    waiting.sendall(b"POST / HTTP/1.1\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
    answers = [ask("one"), ask("two")]
    received = 0
    while received < 5_000_000:
        received += len(waiting.recv(65536))
    return answers
"""
    assert evaluate(source).output == ["ONE", "TWO"]


def test_connections_know_their_addresses(evaluate):
    source = """
def f():
    with socket.create_connection(("127.0.0.1", 9)) as one:
        assert one.connect_ex(("127.0.0.1", 9)) == 0
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        addresses = [list(one.getpeername()), list(one.getsockname())]
        return [*addresses, int(one.family), one.sendmsg([b"a", b"b"])]
"""
    assert evaluate(source).output == [["127.0.0.1", 9], ["127.0.0.1", 0], 2, 2]


@pytest.mark.parametrize(
    "attempt",
    [
        "socket.create_connection(('127.0.0.1', PORT), timeout=5)",
        "socket.create_connection(('192.0.2.1', 9), timeout=5)",
        "socket.socket(socket.AF_INET6).connect(('::1', 9))",
        "socket.socket().bind(('127.0.0.1', 0))",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))",
        "socket.socket(socket.AF_UNIX).connect('/run/socket')",
        "asyncio.run(asyncio.open_connection('127.0.0.1', PORT))",
        "httpx.get('http://127.0.0.1:PORT/')",
    ],
)
def test_nothing_but_the_models_is_reached(server, confined, attempt):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        text = attempt.replace("PORT", str(listening.getsockname()[1]))
        source = (
            f"import asyncio, httpx\n{ASK}"
            f"def f():\n    try:\n        {text}\n"
            "    except Exception as error:\n        return [ask('still'), str(error)]"
        )
        result = ask_with(source, confined, server.connection_of("one"))
        assert result.error is None
        answer, error = result.output
        assert answer == "STILL"
        assert "not permitted" in error or "connection attempts failed" in error
        listening.settimeout(0)
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_the_name_of_another_host_is_not_looked_up(server, confined):
    source = f"{ASK}def f(): return socket.getaddrinfo('example.org', 80)"
    assert "gaierror" in ask_with(source, confined, server.connection_of("one")).error


def test_no_secret_is_in_the_environment_of_a_program(evaluate):
    source = "def f(): return [v for k, v in os.environ.items() if 'KEY' in k or 'URL' in k]"
    expected = {"sandbox", "http://127.0.0.1:9", "http://127.0.0.1:9/v1"}
    assert set(evaluate(source).output) == expected


def test_a_program_holds_one_channel_and_without_models_none(server, layer):
    models = ask_with(HELD, layer, server.connection_of("one"))
    assert models.output == ["p", "p", "s"]
    assert run(HELD, layer, preload=()).output == ["p", "p"]
    assert run(f"{ASK}def f(): return [k for k in os.environ if 'API' in k]", layer).output == []


def test_a_program_without_models_finds_sockets_as_they_were(confined):
    source = f"{ASK}def f(): return socket.create_connection(('127.0.0.1', 9))"
    assert "PermissionError" in run(source, confined, preload=()).error


def test_programs_at_the_same_time_have_channels_of_their_own(server, layer):
    source = f"{ASK}def f(name):\n    return [ask(name + str(n)) for n in range(20)]"

    def evaluate(name):
        return ask_with(source, layer, server.connection_of(name), name=name)

    names = ["a", "b", "c", "d"]
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(evaluate, names))
    expected = [[f"{name.upper()}{n}" for n in range(20)] for name in names]
    assert [result.output for result in results] == expected
    assert all(text.startswith(name) for name, text in server.requests)


def test_the_next_program_of_a_slot_has_a_new_channel(server, layer):
    SLOTS.close()
    source = f"{ASK}def f(): return [ask('x'), os.getpid()]"
    for name in ("first", "second"):
        result = ask_with(source, layer, server.connection_of(name))
        assert result.output[0] == "X"
        assert becomes_true(lambda: len(prepared_of(os.getpid())) == 1)
    assert server.requests == [("first", "x"), ("second", "x")]
    for end in server.closed:
        end.result(PATIENCE_SECONDS)


@pytest.mark.parametrize("ending", ["return 1", "os._exit(3)", "os.kill(os.getpid(), 9)", "1 / 0"])
def test_connections_end_with_their_program(evaluate, server, ending):
    source = f"""
def f():
    one = socket.create_connection(("127.0.0.1", 9))
    globals()["kept"] = one
    one.sendall(b"POST / HTTP/1.1\\r\\nContent-Length: 100\\r\\n\\r\\nhalf")
    ask("x")
    {ending}
"""
    evaluate(source)
    assert server.num_connections == 2
    for end in server.closed:
        end.result(PATIENCE_SECONDS)
    assert server.requests == [("one", "x")]


def test_a_process_that_outlives_the_program_asks_no_more(evaluate, server):
    source = """
def f():
    read_fd, write_fd = os.pipe()
    if os.fork() == 0:
        ask("from a fork")
        os.write(write_fd, b"x")
        while True:
            time.sleep(0.01)
            try:
                ask("late")
            except OSError:
                pass
    os.read(read_fd, 1)
    return 1
"""
    assert evaluate(source, limits=Limits(wall_seconds=60, processes=2)).output == 1
    for end in list(server.closed):
        end.result(PATIENCE_SECONDS)
    asked = list(server.requests)
    assert ("one", "from a fork") in asked
    assert ask_with(f"{ASK}def f(): return ask('next')", Layer.PROCESS, server.connection_of("two"))
    assert server.requests == [*asked, ("two", "next")]


def test_processes_of_a_program_ask_at_the_same_time(server, confined):
    source = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
def nested(number):
    with ProcessPoolExecutor(1, get_context("fork")) as inner:
        return inner.submit(ask, f"n{number}").result()
def f():
    first = ask("before")
    with ProcessPoolExecutor(3, get_context("fork")) as pool:
        answers = list(pool.map(ask, [f"q{n}" for n in range(12)]))
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        answers.append(pool.submit(nested, 7).result())
    return [first, *answers, ask("after")]
"""
    limits = Limits(wall_seconds=60, processes=8)
    result = ask_with(ASK + source, confined, server.connection_of("one"), limits)
    assert result.error is None
    assert result.output == ["BEFORE", *(f"Q{n}" for n in range(12)), "N7", "AFTER"]
    assert len(server.requests) == 15


def test_the_thread_that_carries_is_not_one_of_the_programs(evaluate):
    # Half a second is time for many looks at the threads; one too many is waited for.
    source = """
def f(threads, seconds):
    answer = ask("x")
    for _ in range(threads):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    time.sleep(seconds)
    return answer
"""
    limits = Limits(wall_seconds=PATIENCE_SECONDS, threads=2)
    assert evaluate(source, limits=limits, threads=1, seconds=0.5).output == "X"
    refused = evaluate(source, limits=limits, threads=2, seconds=600).error
    assert refused == "the program had more than 2 threads"


def test_more_connections_than_may_be_open_are_closed(evaluate, server):
    source = """
def f(number):
    held = [socket.create_connection(("127.0.0.1", 9)) for _ in range(number)]
    held[-1].settimeout(30)
    is_closed = held[-1].recv(1) == b""
    for one in held[:-1]:
        one.close()
    while True:  # until one of them is closed at the other end too
        try:
            return [is_closed, ask("x")]
        except OSError:
            pass
"""
    assert evaluate(source, number=MAX_CONNECTIONS + 1).output == [True, "X"]
    assert server.num_connections == MAX_CONNECTIONS + 1


def test_connections_leave_half_of_the_descriptors_to_the_run(evaluate, server):
    source = """
import http.client
def f(number=40):
    body = json.dumps({"messages": [{"content": "x"}]})
    kept, num_served = [], 0
    for _ in range(number):
        kept.append(http.client.HTTPConnection("127.0.0.1", 9, timeout=30))
        try:
            kept[-1].request("POST", "/v1/chat/completions", body)
            num_served += kept[-1].getresponse().status == 200
        except ConnectionError:
            pass
    return num_served
"""
    assert evaluate(source, number=0).output == 0
    num_open = len(os.listdir("/proc/self/fd"))
    assert evaluate(source).output == 40
    # The server of this process closes its ends of the connections in its own time.
    assert becomes_true(lambda: len(os.listdir("/proc/self/fd")) <= num_open)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * (num_open + 30), hard))
    try:
        result = evaluate(source)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert 0 < result.output < 20


FLOOD = """
import struct
from itertools import count
HEADER = struct.Struct("!QI")
def channel():
    return next(fd for fd in range(255, 2, -1) if is_socket(fd))
def is_socket(fd):
    try:
        return (os.fstat(fd).st_mode & 0o170000) == 0o140000
    except OSError:
        return False
"""


@pytest.mark.parametrize(
    ("piece", "reason"),
    [
        (
            "HEADER.pack(n, 0) + HEADER.pack(n, 0)",
            f"the program opened more than {MAX_OPENED} connections to its models",
        ),
        ("HEADER.pack(1, 1) + b'x'", "the program sent more than 1024 MB to its models"),
    ],
)
def test_a_flood_of_frames_stops_the_program(layer, piece, reason):
    source = f"""
{ASK}
{FLOOD}
def f():
    fd = channel()
    threading.Thread(target=drain, args=(fd,), daemon=True).start()
    for start in count(0, 1000):
        view = memoryview(b"".join({piece} for n in range(start + 1, start + 1001)))
        while view:
            view = view[os.write(fd, view):]
def drain(fd):
    while os.read(fd, 65536):
        pass
"""
    result = ask_with(source, layer, socket.socket.close)
    assert result.error == reason


def test_garbage_on_the_channel_ends_the_channel_alone(evaluate):
    source = f"""
{FLOOD}
def f():
    fd = channel()
    os.write(fd, b"GET / HTTP/1.1\\r\\n\\r\\n" * 100)
    try:
        while os.read(fd, 100):
            pass
    except ConnectionResetError:
        pass
    errors = []
    for _ in range(3):
        try:
            ask("x")
        except OSError as error:
            errors.append(str(error))
    return errors
"""
    errors = evaluate(source).output
    assert len(errors) == 3
    assert "timed out" not in str(errors)


def test_a_program_that_closes_its_channel_is_evaluated(evaluate):
    source = f"{FLOOD}\ndef f():\n    ask('x')\n    os.close(channel())\n    return 1"
    assert evaluate(source).output == 1


def test_a_program_in_an_interpreter_of_its_own_asks_too(server):
    kind = SlotKind(Layer.PROCESS, (), is_single_use=True)
    call = {"mode": "candidate", "entry_point": "f", "program": "candidate.py"}
    source = f"{ASK}def f(): return ask('x')".encode()
    for name in ("one", "two"):
        request = request_for({"candidate.py": source}, call, [{}], server.connection_of(name))
        [result] = results_of(execute_in_any(kind, request, AMPLE, 60))
        assert result.output == "X"
    assert server.requests == [("one", "x"), ("two", "x")]


PYTHON = Commands(run="python3 {program}", file_name="candidate.py")


def run_as_command(source, layer, connect, commands=PYTHON, calls=({},), limits=AMPLE):
    return run_commands(f"{ASK}{source}", commands, calls, limits, layer, connect=connect)


def test_a_program_that_a_command_starts_asks_in_each_call(server, each_layer):
    source = "import sys\nprint(ask(sys.stdin.read()), ask('b'))"
    calls = [{"stdin": "one"}, {"stdin": "two"}]
    results = run_as_command(source, each_layer, server.connection_of("x"), calls=calls)
    assert [result.output["stderr"] for result in results] == ["", ""]
    assert [result.output["stdout"] for result in results] == ["ONE B\n", "TWO B\n"]
    assert [text for _, text in server.requests] == ["one", "b", "two", "b"]


def test_one_process_of_a_command_after_the_other_asks(server, layer):
    source = "import sys\nprint(ask(sys.argv[1]), flush=True)\nif sys.argv[1] == 'bad': os._exit(0)"
    words = "python3 {program} a; python3 {program} bad; python3 {program} c | cat"
    commands = Commands(run=f"sh -c '{words}'", file_name="candidate.py")
    limits = Limits(wall_seconds=60, processes=8)
    connect = server.connection_of("x")
    [result] = run_as_command(source, layer, connect, commands=commands, limits=limits)
    assert result.output["stdout"] == "A\nBAD\nC\n"


def test_a_second_process_of_a_command_is_refused_while_the_first_uses_the_models(server, layer):
    source = (
        "import subprocess, sys\n"
        "if sys.argv[1:]:\n"
        "    if os.fork() == 0: os._exit(0)\n"
        "    ask('second')\n"
        "else:\n"
        "    ask('first')\n"
        "    held = int(os.environ['COSTADA_MODELS'].partition(':')[0])\n"
        "    words = [sys.executable, sys.argv[0], 'second']\n"
        "    second = subprocess.run(words, pass_fds=[held], capture_output=True, text=True)\n"
        "    print(second.stderr)\n"
        "    subprocess.run(words)\n"
    )
    limits = Limits(wall_seconds=60, processes=8)
    [result] = run_as_command(source, layer, server.connection_of("x"), limits=limits)
    assert IN_USE in result.output["stdout"]
    assert "Exception ignored" not in result.output["stdout"]
    assert result.output["stderr"].strip().splitlines()[-1].startswith("urllib.error.URLError")
    assert server.requests == [("x", "first")]


def test_a_command_without_models_has_no_code_of_ours(layer):
    source = "import os\nprint(sorted(os.listdir('.')), 'PYTHONPATH' in os.environ)"
    [result] = run_commands(source, PYTHON, [{}], AMPLE, layer)
    assert result.output["stdout"] == "['.build', 'candidate.py'] False\n"


def test_the_command_of_a_repository_asks(server, layer, tmp_path):
    for name in (REPOSITORY, HOME):
        (tmp_path / name).mkdir()
    text = f"{ASK}import part\nprint(len(ask(part.TEXT)))"
    (tmp_path / REPOSITORY / "score.py").write_text(text)
    size = os.stat(tmp_path)
    original = Original(str(tmp_path), 3, 1, (size.st_dev, size.st_ino))
    result = run_in_copy(
        Program.of({"part.py": "TEXT = 'four'"}),
        original,
        {"command": ["python", "score.py"]},
        Limits(wall_seconds=60, processes=8),
        layer=layer,
        connect=server.connection_of("repository"),
    )
    assert result.error is None
    assert result.output["metrics"] == {"combined_score": 4.0}, result
    assert server.requests == [("repository", "four")]
