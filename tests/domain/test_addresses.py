"""What can be the name of a machine, and which of them is this one."""

import pytest

from tileferry.domain.addresses import is_host, is_loopback


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "tiles.example.org",
        "tiles.example.org.",
        "127.0.0.1",
        "::1",
        "xn--bcher-kva.de",
    ],
)
def test_valid_hosts_are_accepted(host: str) -> None:
    assert is_host(host)


@pytest.mark.parametrize(
    "host", ["", "xn--", "a..b", "-a", "a-", "a_b", "::::", "bücher.de", "a" * 64, "a." * 130 + "b"]
)
def test_invalid_hosts_are_rejected(host: str) -> None:
    assert not is_host(host)


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("localhost", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("a.b", False),
    ],
)
def test_loopback_hosts_are_recognised(host: str, is_ours: bool) -> None:  # noqa: FBT001  # what is expected
    assert is_loopback(host) is is_ours
