"""Which addresses may be called."""

import pytest

from egress.addresses import PrivateAddresses, is_allowed

PUBLIC = ["93.184.216.34", "2606:4700:4700::1111", "::ffff:93.184.216.34"]
LOOPBACK = ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"]
PRIVATE = ["10.0.0.1", "172.16.3.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "fd00::1", "fe80::1%eth0",
           "fec0::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "192.0.0.192", "192.88.99.1", "3fff::1"]  # fmt: skip
NEVER = ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "240.0.0.1", "255.255.255.255"]


@pytest.mark.parametrize("address", PUBLIC)
@pytest.mark.parametrize("private", ["none", "loopback", "all"])
def test_a_public_address_is_always_allowed(address: str, private: PrivateAddresses) -> None:
    """SPEC Y4."""
    assert is_allowed(address, private=private)


@pytest.mark.parametrize("address", LOOPBACK)
def test_loopback_needs_leave_however_it_is_written(address: str) -> None:
    """SPEC Y4: also as an IPv4 address inside an IPv6 one."""
    verdicts = [is_allowed(address, private=private) for private in ("none", "loopback", "all")]
    assert verdicts == [False, True, True]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_needs_the_widest_leave(address: str) -> None:
    """SPEC Y4: link-local metadata services, carrier and site networks included."""
    verdicts = [is_allowed(address, private=private) for private in ("none", "loopback", "all")]
    assert verdicts == [False, False, True]


@pytest.mark.parametrize("address", NEVER)
def test_addresses_of_no_single_host_are_never_allowed(address: str) -> None:
    """SPEC Y4."""
    assert not is_allowed(address, private="all")
