"""Following a Run's events over a real socket, whatever else the stream carries."""

import asyncio

from cli.client import Api, Target

STREAM = b"""HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n\
id: 1\nevent: run_started\ndata: {"run_seq": 1, "type": "run_started"}\n\n\
: ping\n\n\
id: 2\nevent: run_ended\ndata: {"run_seq": 2, "type": "run_ended"}\n\n"""


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(STREAM)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def test_a_sign_of_life_between_two_events_is_no_event() -> None:
    """SPEC 16: a model that thinks for long leaves the stream with keep-alive comments only."""
    async with await asyncio.start_server(_answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Api(Target(f"http://127.0.0.1:{port}", "al_key")) as api:
            seen = [event["run_seq"] async for event in api.events("a-run")]
    assert seen == [1, 2]
