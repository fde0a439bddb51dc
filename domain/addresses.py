"""Addresses of machines."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine, so that what is sent to it does not leave it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
