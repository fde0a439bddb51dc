"""An httpx client bound to one provider: address, TLS, headers, and their validation."""

import ssl
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import httpx
from attrs import field, frozen

from tileferry.adapters.http.bounded_transport import BoundedTransport
from tileferry.domain.addresses import is_host, is_loopback
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import integer, number


def mask_secret(value: object) -> str:
    """Return a repr of a secret that shows only whether it is set."""
    return "***" if value else "''"


def build_user_agent(contact: str | None = None) -> str:
    """Return the ``User-Agent`` header, with the contact if there is one."""
    own = f"tileferry/{version('tileferry')}"
    return own if contact is None else f"{own} ({contact})"


@frozen(kw_only=True)
class ProviderAddress:
    """The provider's address, and the credentials and headers to send to it."""

    url: str
    service_api_key: str | None = field(repr=mask_secret)
    """``None`` to send no ``Authorization`` header."""
    ca_file: Path | None = None
    """Certificates of a private authority, trusted in addition to those of the system."""
    timeout_s: float = field(default=10.0, validator=number(0.001, 3600))
    """Timeout for connecting, and between two chunks of a response."""
    connections: int = field(default=8, validator=integer(1, 256))
    user_agent: str = field(factory=build_user_agent)
    plain_http_hosts: tuple[str, ...] = ()
    """Hosts in the local network that may be used over plain http, without a key."""

    @property
    def headers(self) -> dict[str, str]:
        """Headers sent with every request."""
        common = {"Accept-Encoding": "identity", "User-Agent": self.user_agent}
        if self.service_api_key is None:
            return common
        return {"Authorization": f"Bearer {self.service_api_key}", **common}


def new_client(
    address: ProviderAddress, *, transport: httpx.BaseTransport | None = None
) -> httpx.Client:
    """Return a client that ignores redirects and environment variables.

    TLS verification cannot be disabled. Plain http is allowed for this machine only.
    """
    check_address(address)
    return httpx.Client(
        base_url=address.url.rstrip("/"),
        headers=address.headers,
        timeout=address.timeout_s,
        follow_redirects=False,
        trust_env=False,
        transport=transport
        or BoundedTransport(tls=create_tls_context(address), connections=address.connections),
    )


def check_address(address: ProviderAddress) -> None:
    """Reject an address or a key that cannot be used safely."""
    is_open = address.service_api_key is None
    check_url(address.url, plain_http_hosts=address.plain_http_hosts if is_open else ())
    if address.service_api_key is not None:
        check_key(address.service_api_key)


def create_tls_context(address: ProviderAddress) -> ssl.SSLContext:
    """Return a context that requires TLS 1.2 or later and verifies host name and certificate."""
    try:
        if httpx.URL(address.url).scheme == "https":
            context = ssl.create_default_context()
        else:  # unused over plain http: loading the system's authorities is slow, so trust none
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if address.ca_file is not None:
            context.load_verify_locations(address.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidValueError(
            field="c11.ca_file",
            value=str(address.ca_file),
            problem=f"cannot load certificates: {error}",
            remedy="use a file in PEM format",
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def check_url(url: str, *, plain_http_hosts: Sequence[str] = ()) -> None:
    """Reject an invalid address, or one that would send the key unencrypted."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        parsed = httpx.URL("")
    remedy = "use https://host or https://host:port/path"
    if parsed.scheme not in {"http", "https"} or not is_host(parsed.raw_host.decode("ascii")):
        raise InvalidValueError(
            field="c11.satellite_provider_url",
            value=parsed.scheme or "***",  # an invalid address may contain a secret
            problem="is not a valid provider address",
            remedy=remedy,
        )
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise InvalidValueError(
            field="c11.satellite_provider_url",
            value=f"{parsed.scheme}://{parsed.host}",
            problem="must contain only a host, a port and a path",
            remedy="set the key in TILEFERRY_C11_SERVICE_API_KEY, or in a file",
        )
    is_plain = parsed.scheme == "http" and parsed.host not in plain_http_hosts
    if is_plain and not is_loopback(parsed.host):
        raise InvalidValueError(
            field="c11.satellite_provider_url",
            value=url,
            problem="would send the key over plain http",
            remedy=f"{remedy}; plain http is allowed for this machine only",
        )


def check_key(key: str) -> None:
    """Reject a key that is empty or not valid in a header."""
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidValueError(
            field="c11.service_api_key",
            value="***",
            problem="is empty" if not key else "contains characters that are not allowed in a key",
            remedy="set TILEFERRY_C11_SERVICE_API_KEY, or c11.service_api_key_file",
        )
