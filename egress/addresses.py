"""Which addresses an outbound call may reach (SPEC Y4). A pure verdict on one IP address; nothing is resolved here."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Literal

PrivateAddresses = Literal["none", "loopback", "all"]
"""How far a call may reach beyond the public internet: `loopback` is for development, `all` for a closed network."""

_NAT64 = IPv6Network("64:ff9b::/96")
# Not public, which older Pythons do not know: protocol assignments (a cloud keeps credentials of its machines at
# 192.0.0.192), relays that are no more, documentation.
_NOT_PUBLIC = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"), IPv6Network("3fff::/20"))


def is_allowed(address: str, *, private: PrivateAddresses) -> bool:
    """Whether a call may connect to this IP address, given as text (an IPv6 scope id is ignored).

    An IPv6 address that carries an IPv4 address is judged by the address it really leads to.
    """
    ip = _destination(ip_address(address.partition("%")[0]))
    if ip.is_multicast or ip.is_unspecified or (ip.is_reserved and not ip.is_loopback):
        return False
    if ip.is_loopback:
        return private in ("loopback", "all")
    return _is_public(ip) or private == "all"


def _is_public(ip: IPv4Address | IPv6Address) -> bool:
    if isinstance(ip, IPv6Address) and ip.is_site_local:
        return False
    return ip.is_global and not any(ip in network for network in _NOT_PUBLIC)


def _destination(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address behind a mapped, NAT64, 6to4 or Teredo address, else the address itself."""
    if isinstance(ip, IPv4Address):
        return ip
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFF_FFFF)
    if ip.teredo:
        return ip.teredo[1]
    return ip.ipv4_mapped or ip.sixtofour or ip
