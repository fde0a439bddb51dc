"""The URL template of a tile server: ``…/{z}/{x}/{y}.png``."""

import re
from collections.abc import Mapping
from hashlib import sha256

from attrs import field, frozen

from tileferry.domain.addresses import PORT_MAX, is_host, is_loopback
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.redaction import redact_likely_keys
from tileferry.domain.tiles.tile_id import TileId
from tileferry.domain.validation import NAME_CHARS_MAX, is_name

SETTING = "xyz.url_template"
EXAMPLE = "https://tiles.example.org/{z}/{x}/{y}.png"
KEY_PLACE = "{api_key}"
HIDDEN_KEY = "***"
_PLACES = ("z", "x", "y", "-y", "api_key")
_PLACE = re.compile(r"\{([^{}]*)\}")
_FORM = re.compile(
    r"(?P<origin>(?P<scheme>https?)://(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])"
    r"(?P<port>:[0-9]{1,5})?)"
    r"(?P<path>/[A-Za-z0-9._~:/?@!$&'()*+,;=%{}\[\]-]*)",
    re.ASCII,
)
_CHARS_MAX = 2_000
_SOURCE_PREFIX = "xyz-"
_HASH_CHARS = 8
_NO_NAME = re.compile(r"[^a-z0-9.]+")
_KEY_NAMES = re.compile(
    r"[?&](?:api[_-]?key|key|(?:access[_-]?)?token|secret|sig|signature)=(?!\{api_key\}(?:&|$))",
    re.IGNORECASE,
)
# Characters that need no escaping in a URL. A key then has only one form to redact.
_KEY = re.compile(r"[A-Za-z0-9._~-]{1,4096}", re.ASCII)


@frozen
class TileTemplate:
    """A valid template: it has every required placeholder and no unknown one."""

    text: str = field(repr=lambda text: repr(redact_likely_keys(text)))
    _parts: Mapping[str, str] = field(init=False, repr=False, eq=False)

    @_parts.default
    def _parse_parts(self) -> Mapping[str, str]:
        _check_places(self.text)
        found = _FORM.fullmatch(self.text) if len(self.text) <= _CHARS_MAX else None
        if found is None:
            # The error does not show the value: invalid text may contain a key.
            raise _build_error("is not the URL of a tile server", f"write it as {EXAMPLE}")
        port = found["port"] or ":0"
        if not is_host(found["host"].strip("[]")) or int(port[1:]) > PORT_MAX:
            raise _build_error("has an invalid host or port", f"write it as {EXAMPLE}")
        if found["scheme"] == "http" and not is_loopback(found["host"].strip("[]")):
            raise _build_error(
                f"would connect to {found['host']} over plain http",
                "use https; http is allowed for this machine only",
            )
        if _KEY_NAMES.search(self.text):
            raise _build_error(
                "seems to contain a key, which would appear in logs",
                f"replace it with {KEY_PLACE}, and put the key into a file with mode 0600 that "
                "c11.service_api_key_file names, or into TILEFERRY_C11_SERVICE_API_KEY",
            )
        return found.groupdict(default="")

    @property
    def origin(self) -> str:
        """Scheme, host and port: ``https://tiles.example.org``."""
        return self._parts["origin"]

    @property
    def host(self) -> str:
        """The host in the form used for comparison: lower case, without a trailing dot."""
        return self._parts["host"].lower().rstrip(".")

    @property
    def host_and_port(self) -> str:
        """The host, and the port if the template has one."""
        return f"{self.host}{self._parts['port']}"

    @property
    def source(self) -> str:
        """The default source name for this server's tiles.

        It is specific to the server, so that its tiles never replace those of a provider.
        """
        plain = f"{_SOURCE_PREFIX}{self.host_and_port}"
        if is_name(plain):
            return plain
        digest = sha256(self.host_and_port.encode()).hexdigest()[:_HASH_CHARS]
        readable = _NO_NAME.sub("-", plain)[: NAME_CHARS_MAX - _HASH_CHARS - 1]
        return f"{readable.rstrip('-')}-{digest}"

    @property
    def has_key(self) -> bool:
        """Whether the URL contains the key."""
        return KEY_PLACE in self.text

    def build_path(self, tile: TileId, *, key: str = HIDDEN_KEY) -> str:
        """Return a tile's path and query. Without ``key`` it has no ``{api_key}`` in it; what looks
        like another key is still there, and ``redact_likely_keys`` hides it.
        """
        south_up = (1 << tile.zoom) - 1 - tile.y
        values = {"z": tile.zoom, "x": tile.x, "y": tile.y, "-y": south_up, "api_key": key}
        return _PLACE.sub(lambda place: str(values[place[1]]), self._parts["path"])

    def check_key(self, key: str) -> None:
        """Reject a key that would need escaping in the URL."""
        if self.has_key and not _KEY.fullmatch(key):
            raise InvalidValueError(
                field="c11.service_api_key",
                value="***",
                problem="has characters that need escaping in a URL",
                remedy="use only A-Z a-z 0-9 . _ ~ -; ask the server's operator for such a key",
            )


def _check_places(text: str) -> None:
    places = _PLACE.findall(text)
    for place in places:
        if place not in _PLACES:
            raise _build_error(
                f"has an unknown placeholder, {{{place}}}",
                f"use {', '.join(f'{{{known}}}' for known in _PLACES)}; {EXAMPLE}",
            )
    if "{" in (rest := _PLACE.sub("", text)) or "}" in rest:
        raise _build_error("has an unmatched brace", f"write it as {EXAMPLE}")
    for wanted in ("z", "x"):
        if wanted not in places:
            raise _build_error(f"has no {{{wanted}}} placeholder", f"write it as {EXAMPLE}")
    if ("y" in places) == ("-y" in places):
        raise _build_error(
            "must have either a {y} or a {-y} placeholder",
            "{y} counts rows from the north, {-y} from the south, as TMS does",
        )


def _build_error(problem: str, remedy: str) -> InvalidValueError:
    return InvalidValueError(field=SETTING, value=None, problem=problem, remedy=remedy)
