"""An HTTP server that is given connected sockets, and answers in capital letters."""

import asyncio
import json
import threading
from concurrent.futures import Future


class ModelServer:
    """Serves the connections that evaluations hand to `connection_of(name)`."""

    def __init__(self):
        self.requests = []  # name of the connection, and what was asked
        self.num_connections = 0
        self.closed = []  # a future for each connection, done when it has ended
        self._tasks = []  # the loop itself holds none of them
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def connection_of(self, name):
        def connect(connected):
            self.num_connections += 1
            self.closed.append(end := Future())
            serving = self._serve(name, connected, end)
            self._tasks.append(asyncio.run_coroutine_threadsafe(serving, self._loop))

        return connect

    def close(self):
        async def end_all():
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end_all(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _serve(self, name, connected, end):
        reader, writer = await asyncio.open_connection(sock=connected)
        try:
            while await self._answer(name, reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            end.set_result(None)

    async def _answer(self, name, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        fields = dict(line.split(": ", 1) for line in head.splitlines()[1:] if line)
        body = json.loads(await reader.readexactly(int(fields.get("content-length", 0))))
        text = body["messages"][0]["content"]
        self.requests.append((name, text))
        answer = {"role": "assistant", "content": text.upper()}
        shared = {"id": "1", "created": 1, "model": "m"}
        if body.get("stream"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            for piece in (*text.upper(), None):
                choice = {"index": 0, "delta": {"content": piece}}
                event = {**shared, "object": "chat.completion.chunk", "choices": [choice]}
                text_of = "[DONE]" if piece is None else json.dumps(event)
                writer.write(f"data: {text_of}\n\n".encode())
                await writer.drain()
            return False
        choice = {"index": 0, "finish_reason": "stop", "message": answer}
        content = json.dumps({**shared, "object": "chat.completion", "choices": [choice]}).encode()
        opening = (
            f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
        )
        writer.write(f"{opening}\r\n\r\n".encode() + content)
        await writer.drain()
        return True
