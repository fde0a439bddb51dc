"""The address of a tile server: of its tiles, or of the document that describes them."""

import re
from collections.abc import Mapping, Sequence

from attrs import field, frozen

from tileferry.domain.addresses import PORT_MAX, is_host, is_loopback
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.redaction import redact_likely_keys
from tileferry.domain.validation import NAME_CHARS_MAX, is_name

with import_on_call(globals()):
    from hashlib import sha256

KEY_PLACE = "{api_key}"
HIDDEN_KEY = "***"
PLACE = re.compile(r"\{([^{}]*)\}")
_FORM = re.compile(
    r"(?P<origin>(?P<scheme>https?)://(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])"
    r"(?P<port>:[0-9]{1,5})?)"
    r"(?P<path>/[A-Za-z0-9._~:/?@!$&'()*+,;=%{}\[\]-]*)",
    re.ASCII,
)
_CHARS_MAX = 2_000
_KEY_CHARS_MAX = 4_096
_SOURCE_PREFIX = "xyz-"
_HASH_CHARS = 8
_NO_NAME = re.compile(r"[^a-z0-9.]+")
_ESCAPED = re.compile(r"[^A-Za-z0-9._~-]", re.ASCII)
_KEY_NAMES = re.compile(
    r"[?&](?:api[_-]?key|key|(?:access[_-]?)?token|secret|sig|signature)=(?!\{api_key\}(?:&|$))",
    re.IGNORECASE,
)


@frozen
class ServerUrl:
    """A valid URL of a tile server; it may have a placeholder for the key."""

    text: str = field(repr=lambda text: repr(redact_likely_keys(text)))
    setting: str = field(default="xyz.tilejson_url", kw_only=True, eq=False, repr=False)
    """The setting that the URL comes from; errors name it."""
    plain_http_hosts: tuple[str, ...] = field(default=(), kw_only=True, repr=False)
    """Hosts in the local network that may be connected to without TLS."""
    servers: Sequence[Mapping[str, str]] = field(init=False, repr=False, eq=False)
    """The parts of the URL, for each of the servers that it stands for."""

    @servers.default
    def _make_servers(self) -> Sequence[Mapping[str, str]]:
        return self.parse_servers()

    def parse_servers(self) -> Sequence[Mapping[str, str]]:
        """Return the parts of the URL, for each server; raise if it is not valid."""
        self.check_places(PLACE.findall(self.text))
        if "{" in (rest := PLACE.sub("", self.text)) or "}" in rest:
            raise self.build_error("has an unmatched brace")
        servers = [self._parse(text) for text in self.expand()]
        if _KEY_NAMES.search(self.text):
            raise self.build_error(
                "seems to contain a key, which would appear in logs",
                f"replace it with {KEY_PLACE}, and put the key into a file with mode 0600 that "
                "c11.service_api_key_file names, or into TILEFERRY_C11_SERVICE_API_KEY",
            )
        return servers

    def check_places(self, places: Sequence[str]) -> None:
        """Reject placeholders that the URL cannot have."""
        for place in places:
            if f"{{{place}}}" != KEY_PLACE:
                raise self.build_error(
                    f"has an unknown placeholder, {{{place}}}", f"use no other than {KEY_PLACE}"
                )

    def expand(self) -> list[str]:
        """Return the URL for each of the servers that it stands for."""
        return [self.text]

    @property
    def example(self) -> str:
        return "https://tiles.example.org/tiles.json"

    def _parse(self, text: str) -> Mapping[str, str]:
        found = _FORM.fullmatch(text) if len(text) <= _CHARS_MAX else None
        if found is None:
            # The error does not show the value: invalid text may contain a key.
            raise self.build_error("is not the URL of a tile server")
        port, host = found["port"] or ":0", found["host"].strip("[]")
        if not is_host(host) or int(port[1:]) > PORT_MAX:
            raise self.build_error("has an invalid host or port")
        if found["scheme"] == "http" and not is_loopback(host):
            self._check_plain_http(host.lower())
        return found.groupdict(default="")

    def _check_plain_http(self, host: str) -> None:
        if host not in self.plain_http_hosts:
            raise self.build_error(
                f"would connect to {host} over plain http",
                "use https; or, for a host in your own network, add it to xyz.plain_http_hosts",
            )
        if self.has_key:
            raise self.build_error(
                f"would send the key to {host} over plain http",
                "use https, or a server without a key",
            )

    def build_error(self, problem: str, remedy: str | None = None) -> InvalidValueError:
        """Return the error for an invalid URL; it does not show the URL."""
        remedy = remedy or f"write it as {self.example}"
        return InvalidValueError(field=self.setting, value=None, problem=problem, remedy=remedy)

    @property
    def origin(self) -> str:
        """Scheme, host and port of the (first) server: ``https://tiles.example.org``."""
        return self.servers[0]["origin"]

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts in the form used for comparison: lower case, without a trailing dot."""
        return tuple(server["host"].lower().rstrip(".") for server in self.servers)

    @property
    def host_and_port(self) -> str:
        """The host, and the port if the URL has one; as written if there are several hosts."""
        if len(set(self.hosts)) == 1:
            return f"{self.hosts[0]}{self.servers[0]['port']}"
        return self.text.partition("://")[2].partition("/")[0].lower()

    @property
    def source(self) -> str:
        """The default source name for this server's tiles.

        It is specific to the server, so that its tiles never replace those of a provider.
        """
        place = PLACE.sub("", self.host_and_port).lstrip(".")
        plain = f"{_SOURCE_PREFIX}{place}"
        if is_name(plain):
            return plain
        digest = sha256(place.encode()).hexdigest()[:_HASH_CHARS]
        readable = _NO_NAME.sub("-", plain)[: NAME_CHARS_MAX - _HASH_CHARS - 1]
        return f"{readable.rstrip('-')}-{digest}"

    @property
    def has_key(self) -> bool:
        """Whether the URL contains the key."""
        return KEY_PLACE in self.text

    def check_key(self, key: str) -> None:
        """Reject a key that cannot be part of a URL."""
        plain = key.isascii() and key.isprintable() and " " not in key
        if self.has_key and not (plain and 0 < len(key) <= _KEY_CHARS_MAX):
            raise InvalidValueError(
                field="c11.service_api_key",
                value="***",
                problem="is empty, too long, or has characters that are not allowed",
                remedy=f"use at most {_KEY_CHARS_MAX} ASCII characters without spaces",
            )

    def fill_in_key(self, key: str | None = None) -> str:
        """Return the URL of a document with the key, or with ``***`` without one."""
        return self.text.replace(KEY_PLACE, encode_key(key))


def encode_key(key: str | None) -> str:
    """Return a key as it is in a URL: percent-encoded; ``***`` without one."""
    if key is None:
        return HIDDEN_KEY
    return _ESCAPED.sub(lambda char: f"%{ord(char[0]):02X}", key)
