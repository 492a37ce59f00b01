"""A scripted model that costs next to nothing: asks for the tool `note` until it has answered `steps` times, then ends.

Runs as a process of its own, `python -m benchmarks.fast_model STEPS`, and prints its port.
"""

import asyncio
import json
import sys

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"


def _stream(delta: dict[str, object], reason: str) -> bytes:
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    chunks = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {"choices": [], "usage": usage},
    ]
    body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
    return HEAD % len(body) + body


class FastModel:
    """Counts its answers; the one after `steps` tool calls is text, and the count begins again."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._count = 0

    def _answer(self) -> bytes:
        self._count += 1
        if self._count > self._steps:
            self._count = 0
            return _stream({"content": "done"}, "stop")
        function = {"name": "note", "arguments": json.dumps({"n": self._count})}
        call = {"index": 0, "id": f"c{self._count}-{id(self)}", "type": "function", "function": function}
        return _stream({"tool_calls": [call]}, "tool_calls")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, request after request."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                )
                await reader.readexactly(length)
                writer.write(self._answer())
                await writer.drain()
        except asyncio.IncompleteReadError:
            writer.close()


async def main(steps: int) -> None:
    server = await asyncio.start_server(FastModel(steps).serve, "127.0.0.1", 0, limit=64 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
