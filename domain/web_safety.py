"""The rules that keep the web console safe: hosts, origins, sessions, roles and rates.

They decide from the request alone; nothing here reads a clock or generates a secret.
"""

import hmac
import ipaddress
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from enum import StrEnum
from hashlib import sha256

from attrs import define, field, frozen

from tileferry.domain.addresses import is_host, is_loopback
from tileferry.domain.errors import NotPermittedError
from tileferry.domain.retry import RetryBudget
from tileferry.domain.validation import integer, text

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
SESSION_CHARS_MAX = 1_024
TOKEN_CHARS_MIN = 16
_HOST = re.compile(
    r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([^\[\]:/?#@\s]{1,253}))(?::([0-9]{1,5}))?", re.ASCII
)
_CLIENTS_MAX = 4_096


class Role(StrEnum):
    """A viewer reads; an operator also changes things."""

    VIEWER = "viewer"
    OPERATOR = "operator"


class Refusal(StrEnum):
    """Why a request is refused."""

    HOST = "the Host header names another server"
    METHOD = "the method is not allowed"
    ORIGIN = "the request comes from another site"
    READ_ONLY = "the console is read-only"
    ROLE = "a viewer cannot change anything"
    SESSION = "log in first"
    CSRF = "the form is outdated; load the page again"
    RATE = "too many requests; try again later"


# listening


def check_exposure(host: str, *, has_token: bool, has_tls: bool) -> None:
    """Raise if other machines could reach the console without a token or without TLS."""
    if is_loopback(host) or (has_token and has_tls):
        return
    missing = [name for name, given in (("token", has_token), ("TLS", has_tls)) if not given]
    raise NotPermittedError(
        what=f"listening on {host}",
        problem=f"other machines can reach it, and it has no {' and no '.join(missing)}",
        remedy="set serve.token_file, serve.tls_cert and serve.tls_key, or listen on 127.0.0.1",
    )


# hosts and origins


def parse_host(header: str) -> str | None:
    """Return the host of a Host header in lower case, without its port; ``None`` if malformed."""
    match = _HOST.fullmatch(header)
    if match is None:
        return None
    address, name, _port = match.groups()
    if address is not None:
        return _normalize_address(address)
    name = name.lower().removesuffix(".")
    return name if name and is_host(name) else None


@frozen
class AllowedHosts:
    """The names that a request may address.

    This prevents DNS rebinding: a site whose name was changed to resolve to this machine sends
    its own name as the host. An IP address cannot be rebound, so any is allowed beyond loopback.
    """

    names: frozenset[str]
    any_address: bool = False

    @classmethod
    def build(cls, listen_host: str, more: "tuple[str, ...] | list[str]" = ()) -> "AllowedHosts":
        """Return the hosts of a server that listens on an address and has further names."""
        named = {parse_host(f"[{one}]" if ":" in one else one) for one in (listen_host, *more)}
        own = frozenset(name for name in named if name is not None)
        return cls(own | LOOPBACK_HOSTS, any_address=not is_loopback(listen_host))

    def permits(self, header: str | None) -> bool:
        """Return whether a request with this Host header may be answered."""
        host = None if header is None else parse_host(header)
        if host is None:
            return False
        return host in self.names or (self.any_address and _normalize_address(host) is not None)


def _normalize_address(address: str) -> str | None:
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return None


def is_same_origin(*, origin: str | None, fetch_site: str | None, own_origin: str) -> bool:
    """Return whether a change was sent by a page of this server.

    Browsers send ``Origin`` with every POST, and most of them ``Sec-Fetch-Site``. A request with
    neither was not sent by a form of ours, so it is refused as well.
    """
    if fetch_site is not None and fetch_site != "same-origin":
        return False
    if origin is None:
        return fetch_site == "same-origin"
    return origin == own_origin


# sessions


@frozen(kw_only=True)
class Session:
    """A logged-in user, and how long the login lasts."""

    actor: str = field(validator=text)
    role: Role
    expires_at_s: int = field(validator=integer(0))
    nonce: str = field(validator=text)
    """Unique and unpredictable."""


@frozen
class SessionSigner:
    """Turns sessions into cookies and back; refuses changed, foreign and expired ones."""

    key: bytes = field(repr=False)

    def seal(self, session: Session) -> str:
        """Return the value of the cookie."""
        fields = [session.actor, session.role.value, session.expires_at_s, session.nonce]
        body = _encode(json.dumps(fields).encode())
        return f"{body}.{self._sign('session', body)}"

    def open(self, cookie: str, *, now_s: float) -> Session | None:
        """Return the session of a cookie, if we signed it and it has not expired."""
        body, _, signature = cookie.partition(".")
        if len(cookie) > SESSION_CHARS_MAX or not cookie.isascii():
            return None
        if not hmac.compare_digest(signature, self._sign("session", body)):
            return None
        actor, role, expires_at_s, nonce = json.loads(_decode(body))
        if now_s >= expires_at_s:
            return None
        return Session(actor=actor, role=Role(role), expires_at_s=expires_at_s, nonce=nonce)

    def make_csrf_token(self, session: Session) -> str:
        """Return the token that every form of this session contains."""
        return self._sign("csrf", session.nonce)

    def check_csrf_token(self, session: Session, token: str) -> bool:
        return token.isascii() and hmac.compare_digest(token, self.make_csrf_token(session))

    def _sign(self, purpose: str, value: str) -> str:
        return _encode(hmac.digest(self.key, f"{purpose}\0{value}".encode(), sha256))


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decode(data: str) -> bytes:
    return urlsafe_b64decode(data + "=" * (-len(data) % 4))


@frozen
class AccessTokens:
    """The secrets that a login or an ``Authorization`` header can present."""

    operator: str | None = field(default=None, repr=False)
    viewer: str | None = field(default=None, repr=False)

    @property
    def are_required(self) -> bool:
        return self.operator is not None or self.viewer is not None

    def find_role(self, presented: str) -> Role | None:
        """Return the role of a token; the time that this takes does not depend on the token."""
        found = None
        for role, token in ((Role.VIEWER, self.viewer), (Role.OPERATOR, self.operator)):
            if token is not None and hmac.compare_digest(
                sha256(presented.encode(errors="replace")).digest(), sha256(token.encode()).digest()
            ):
                found = role
        return found


def check_change(
    *, is_same_origin: bool, session: Session | None, has_csrf_token: bool, read_only: bool
) -> Refusal | None:
    """Return why a change is refused, if it is."""
    if not is_same_origin:
        return Refusal.ORIGIN
    if read_only:
        return Refusal.READ_ONLY
    if session is None:
        return Refusal.SESSION
    if session.role is not Role.OPERATOR:
        return Refusal.ROLE
    return None if has_csrf_token else Refusal.CSRF


# rates


@define
class RateLimiter:
    """Limits the rate of each client; remembers a bounded number of clients."""

    limit: RetryBudget
    """A full bucket: the burst, and the rate after it."""
    _buckets: "OrderedDict[str, RetryBudget]" = field(factory=OrderedDict, init=False)

    def admit(self, client: str, *, now_s: float) -> bool:
        """Return whether a client may act now, and count it if so."""
        bucket = self._buckets.pop(client, self.limit).refill(now_s)
        allowed = bucket.retries_allowed > 0
        self._buckets[client] = bucket.spend() if allowed else bucket
        while len(self._buckets) > _CLIENTS_MAX:
            self._buckets.popitem(last=False)
        return allowed
