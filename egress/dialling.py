"""Name resolution under guard: a host name is resolved once, its addresses are judged, and only those are dialled.

The transport connects to the judged address itself, so a name that resolves differently a moment later (DNS
rebinding) reaches nothing. The Host header and TLS server name stay those of the URL, because only dialling changes.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from egress.addresses import PrivateAddresses, is_allowed
from egress.errors import AddressRefusedError

Stream = TypeVar("Stream")


async def permitted_addresses(
    host: str, port: int, *, private: PrivateAddresses, timeout_s: float | None = None
) -> list[str]:
    """The addresses of a host that may be dialled, in the resolver's order.

    Raises AddressRefusedError if the name resolves, but to nothing that is allowed; OSError if it does not resolve
    in time, or can't be a name or a port at all.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        found = await _resolved(loop, host, port)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    allowed = [address for address in addresses if is_allowed(address, private=private)]
    if not allowed:
        raise AddressRefusedError
    return allowed


async def _resolved(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[tuple[Any, ...]]:
    """What the resolver says; what is no host name or no port does not resolve either."""
    if not 0 < port < 65_536:
        raise OSError
    try:
        return list(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except UnicodeError:
        raise OSError from None


async def dial_first(
    addresses: list[str], connect: Callable[[str], Awaitable[Stream]], *, unreachable: tuple[type[Exception], ...]
) -> Stream:
    """Connect to the first address that answers; the last one's error is raised if none does."""
    for address in addresses[:-1]:
        try:
            return await connect(address)
        except unreachable:
            continue
    return await connect(addresses[-1])
