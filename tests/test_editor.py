"""An editor's language server finds definitions, if pyright is installed."""

import json
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from doc_blocks import ROOT

pytestmark = pytest.mark.process

SERVER = Path(sys.executable).with_name("pyright-langserver")


class LanguageServer:
    """Speaks the language server protocol to pyright over its standard streams."""

    def __init__(self, process: subprocess.Popen) -> None:
        self._streams, self._ids = (process.stdin, process.stdout), count(1)

    def send(self, **message: object) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._streams[0].write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._streams[0].flush()

    def ask(self, method: str, **params: object) -> object:
        number = next(self._ids)
        self.send(id=number, method=method, params=params)
        while True:
            message = self._read()
            if message.get("id") == number and "method" not in message:
                return message["result"]
            if "id" in message:
                asked = message["params"].get("items") if "params" in message else None
                self.send(id=message["id"], result=asked and [{}] * len(asked))

    def _read(self) -> dict:
        length = 0
        while header := self._streams[1].readline().strip():
            name, value = header.split(b":")
            length = int(value) if name.lower() == b"content-length" else length
        return json.loads(self._streams[1].read(length))


@pytest.mark.skipif(not SERVER.exists(), reason="pyright is not installed: pip install pyright")
def test_go_to_definition_opens_the_file_of_an_imported_name():
    with subprocess.Popen(
        [SERVER, "--stdio"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        server = LanguageServer(process)
        folder = {"uri": ROOT.as_uri(), "name": "costada"}
        server.ask("initialize", processId=None, capabilities={}, workspaceFolders=[folder])
        server.send(method="initialized", params={})
        document = {"uri": (ROOT / "reads.py").as_uri(), "languageId": "python", "version": 1}
        text = "from costada.controller.constants import Constants"
        server.send(
            method="textDocument/didOpen", params={"textDocument": {**document, "text": text}}
        )
        (found,) = server.ask(
            "textDocument/definition",
            textDocument=document,
            position={"line": 0, "character": len(text)},
        )
        process.kill()
    path = Path(found["uri"].removeprefix("file://"))
    assert path.samefile(ROOT / "controller" / "constants.py")
