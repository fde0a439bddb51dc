"""Where NATS is, and with what we log in there."""

from urllib.parse import SplitResult, unquote, urlsplit

from attrs import field, frozen

from tileferry.domain.errors import InvalidValueError

DEFAULT_PORT = 4222
_SCHEMES = frozenset({"nats", "tls"})


@frozen(kw_only=True)
class NatsAddress:
    """Servers of one cluster. The credentials stand apart, where nothing that is shown has them."""

    servers: tuple[str, ...]
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    @property
    def wants_tls(self) -> bool:
        """Whether nothing may be said in the clear."""
        return self.servers[0].startswith("tls:")

    def __str__(self) -> str:
        return ", ".join(self.servers)

    @classmethod
    def parse(cls, nats_url: str) -> "NatsAddress":
        """Read an address, or several with commas between, as they are written in a setting."""
        parts = [_split(url.strip()) for url in nats_url.split(",")]
        if len({part.scheme for part in parts}) > 1:
            raise _refused("names servers with TLS and servers without it")
        logins = {(part.username, part.password) for part in parts if part.username}
        if len(logins) > 1:
            raise _refused("names servers of one cluster with different credentials")
        user, password = logins.pop() if logins else (None, None)
        login = (
            {"token": _unquoted(user)}  # a name without a password is a token, as in other clients
            if password is None
            else {"user": _unquoted(user), "password": unquote(password)}
        )
        return cls(servers=tuple(map(_without_login, parts)), **login)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its text quotes what may be a password
        parts, port = SplitResult("", "", "", "", ""), None
    if port == 0 or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
        raise _refused("is not an address of a NATS server")
    if parts.scheme not in _SCHEMES:
        raise _refused("has a scheme that is not known here")
    return parts


def _without_login(parts: SplitResult) -> str:
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or DEFAULT_PORT}"


def _unquoted(text: str | None) -> str | None:
    return None if text is None else unquote(text)


def _refused(problem: str) -> InvalidValueError:
    # In a mistyped address anything may be the password, so none of it is shown.
    return InvalidValueError(
        field="nats_url",
        value="***",
        problem=problem,
        remedy="use nats://user:password@host:port, or tls:// to insist on TLS, with %40 for an @"
        " in the password, %3A for a colon, %2F for a slash and %2C for a comma",
    )
