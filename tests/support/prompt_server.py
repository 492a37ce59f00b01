"""A server of an application that ends when it is told to: uvicorn itself looks, and pauses, by tenths of a second."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

LOOK_S = 0.005


class PromptServer(uvicorn.Server):
    """Looks more often, and waits for what is under way and for nothing else."""

    async def main_loop(self) -> None:
        while not self.should_exit:
            await asyncio.sleep(LOOK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if under_way := list(self.server_state.tasks):
            _, late = await asyncio.wait(under_way, timeout=self.config.timeout_graceful_shutdown)
            for task in late:
                task.cancel()
        while self.server_state.connections:
            await asyncio.sleep(LOOK_S)
        await self.lifespan.shutdown()


@asynccontextmanager
async def serving(server: uvicorn.Server) -> AsyncIterator[str]:
    """The address of a server that runs in this process, on whatever port it was given."""
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(LOOK_S)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
