"""Addresses of machines."""

import ipaddress
import re

_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)", re.ASCII)
_HOST_CHARS_MAX = 253
PORT_MAX = 65_535


def is_host(text: str) -> bool:
    """Tell whether something can be the name or the number of a machine."""
    name = text.removesuffix(".")
    try:
        name.encode("ascii").decode("idna")  # a name in another script, as it is sent
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


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine, so that what is sent to it does not leave it."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
