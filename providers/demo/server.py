"""Serves the demo model as a real HTTP server on a loopback socket, in the wire form of any chat-completions server."""

import asyncio
import hashlib
import json
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

import uvicorn

from providers.catalogue import DEMO
from providers.demo.conversation import read_request
from providers.demo.rules import Step, next_step

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_LARGEST_REQUEST = 64 << 20
_DELTA_CHARS = 48
_BYTES_PER_TOKEN = 4  # what the demo model calls a token


async def app(scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
    """The ASGI application: `POST …/chat/completions` and `GET …/models`."""
    if scope["type"] != "http":
        raise RuntimeError(f"the demo model serves http, not {scope['type']}")
    path, method = str(scope["path"]), str(scope["method"])
    if method == "GET" and path.endswith("/models"):
        await _send_json(send, 200, {"object": "list", "data": [_model_card()]})
    elif method == "POST" and path.endswith("/chat/completions"):
        await _complete(await _body(receive), send)
    else:
        await _send_json(send, 404, _error("There is nothing at this address."))


class DemoServer:
    """A running demo model."""

    def __init__(self, server: "_Server", task: asyncio.Task[None], listening: socket.socket) -> None:
        self._server = server
        self._task = task
        self._listening = listening
        self._host, self._port = listening.getsockname()[:2]

    @property
    def base_url(self) -> str:
        """What a model target takes as its address."""
        return f"http://{self._host}:{self._port}/v1"

    async def aclose(self) -> None:
        """Stop serving; answers under way are cut."""
        self._server.end.set()
        await self._task
        self._listening.close()


async def serve(host: str = "127.0.0.1", port: int = 0) -> DemoServer:
    """Start the demo model on this address; port 0 takes any free one. Raises OSError if the port is taken."""
    listening = socket.create_server((host, port))
    # uvloop or not is up to the process; the access log would repeat what the platform records anyway.
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none", timeout_keep_alive=75)
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listening]), name="demo-model")
    while not server.started and not task.done():
        await asyncio.sleep(0.005)
    if task.done():
        await task
    return DemoServer(server, task, listening)


class _Server(uvicorn.Server):
    """A uvicorn server that is a guest in its process: it leaves the signals alone and is woken to end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.end = asyncio.Event()

    async def main_loop(self) -> None:
        await self.end.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _complete(body: bytes, send: Send) -> None:
    try:
        request = json.loads(body)
        step = next_step(read_request(request))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        await _send_json(send, 400, _error("This is not a chat-completions request."))
        return
    answer = _Answer(step, body, model=str(request.get("model") or "demo"))
    if not request.get("stream"):
        await _send_json(send, 200, answer.whole())
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for chunk in answer.chunks():
        event = b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


class _Answer:
    """One step in wire form; its id is a hash of the request, so that it is the same for the same request."""

    def __init__(self, step: Step, body: bytes, *, model: str) -> None:
        self._step = step
        self._id = "demo-" + hashlib.sha256(body).hexdigest()[:16]
        self._model = model
        self._calls = [
            {
                "index": place,
                "id": f"{self._id}-{place}",
                "type": "function",
                "function": _function(call.name, call.arguments),
            }
            for place, call in enumerate(step.calls)
        ]
        self._finish = "tool_calls" if self._calls else "stop"
        output = step.text or json.dumps(self._calls)
        counts = [max(1, -(-len(text) // _BYTES_PER_TOKEN)) for text in (body, output.encode())]
        self._usage = {"prompt_tokens": counts[0], "completion_tokens": counts[1], "total_tokens": sum(counts)}

    def whole(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self._step.text or None}
        if self._calls:
            message["tool_calls"] = self._calls
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return self._document("chat.completion", [choice]) | {"usage": self._usage}

    def chunks(self) -> Iterator[dict[str, Any]]:
        text = self._step.text
        yield self._chunk({"role": "assistant", "content": "" if text else None})
        for start in range(0, len(text), _DELTA_CHARS):
            yield self._chunk({"content": text[start : start + _DELTA_CHARS]})
        for call in self._calls:
            yield self._chunk({"tool_calls": [call]})
        yield self._chunk({}, finish=self._finish)
        yield self._document("chat.completion.chunk", []) | {"usage": self._usage}

    def _chunk(self, delta: dict[str, Any], *, finish: str | None = None) -> dict[str, Any]:
        return self._document("chat.completion.chunk", [{"index": 0, "delta": delta, "finish_reason": finish}])

    def _document(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": 0, "model": self._model, "choices": choices}


def _function(name: str, arguments: Mapping[str, Any]) -> dict[str, str]:
    return {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}


def _model_card() -> dict[str, Any]:
    limits = {"context_window": DEMO.context_window, "max_output_tokens": DEMO.max_output_tokens}
    return {"id": "demo", "object": "model", "created": 0, "owned_by": "agentloom", **limits}


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": None}}


async def _body(receive: Receive) -> bytes:
    """The request's body; what goes over the limit is not read, and fails as broken JSON."""
    body = bytearray()
    more = True
    while more and len(body) <= _LARGEST_REQUEST:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body)


async def _send_json(send: Send, status: int, document: Mapping[str, Any]) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(document, ensure_ascii=False).encode()})
