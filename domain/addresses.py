"""Host names and IP addresses."""

import ipaddress
import re

_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)", re.ASCII)
_HOST_CHARS_MAX = 253
PORT_MAX = 65_535


def is_host(text: str) -> bool:
    """Return whether the text is a valid host name or IP address."""
    name = text.removesuffix(".")
    try:
        name.encode("ascii").decode("idna")  # an internationalized name in its ASCII form
    except UnicodeError:
        return False
    if ":" in text:
        return _is_ip_address(text)
    labels = name.split(".")
    return len(name) <= _HOST_CHARS_MAX and all(map(_LABEL.fullmatch, labels))


def _is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_public_address(text: str) -> bool:
    """Return whether the text is an IP address that anybody on the internet may have."""
    return _is_ip_address(text) and ipaddress.ip_address(text).is_global


def is_loopback(host: str) -> bool:
    """Return whether the host is this machine, so that traffic to it stays local."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
