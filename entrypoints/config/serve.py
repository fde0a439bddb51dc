"""The map server and the console."""

from pathlib import Path
from typing import TYPE_CHECKING

from attrs import field, frozen

from tileferry.domain.addresses import PORT_MAX, is_host
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.validation import integer, number
from tileferry.entrypoints.config.fields import doc

if TYPE_CHECKING:
    from attrs import Attribute

ANY_ORIGIN = "*"
UPSCALE_LEVELS_MAX = 4


def _check_hosts(_instance: object, _attribute: "Attribute[list[str]]", hosts: list[str]) -> None:
    for host in hosts:
        if not is_host(host):
            raise InvalidValueError(
                field="ServeConfig.allowed_hosts",
                value=host,
                problem="is not a host name",
                remedy="use names such as map.example, without scheme and port",
            )


def _check_origins(
    _instance: object, _attribute: "Attribute[list[str]]", origins: list[str]
) -> None:
    for origin in origins:
        scheme, _, host = origin.partition("://")
        if origin != ANY_ORIGIN and not (
            scheme in {"http", "https"} and is_host(host.rpartition(":")[0] or host)
        ):
            raise InvalidValueError(
                field="ServeConfig.cors_origins",
                value=origin,
                problem="is not an origin",
                remedy="use https://host, https://host:port, or * for all",
            )


@frozen(kw_only=True)
class ServeConfig:
    """The map server and the console of `tileferry serve`."""

    host: str = field(
        default="127.0.0.1",
        metadata=doc("Address to listen on; beyond loopback, a token and TLS are required."),
    )
    port: int = field(
        default=8_080,
        validator=integer(0, PORT_MAX),
        metadata=doc("Port to listen on; 0 picks a free one."),
    )
    read_only: bool = field(default=False, metadata=doc("Refuse every change from the console."))
    token_file: Path | None = field(
        default=None,
        metadata=doc(
            "File with the operators' token; its mode must be 0600. Without it, everybody on this "
            "machine is an operator.",
            "/home/me/.config/tileferry/token",
        ),
    )
    viewer_token_file: Path | None = field(
        default=None,
        metadata=doc(
            "File with the token of viewers, who cannot change anything.",
            "/home/me/.config/tileferry/viewer-token",
        ),
    )
    tls_cert: Path | None = field(
        default=None,
        metadata=doc("PEM certificate; serves https.", "/etc/ssl/tileferry.pem"),
    )
    tls_key: Path | None = field(
        default=None,
        metadata=doc("PEM key of the certificate.", "/etc/ssl/tileferry-key.pem"),
    )
    allowed_hosts: list[str] = field(
        factory=list,
        validator=_check_hosts,
        metadata=doc("Further host names of this server; a request for any other is refused."),
    )
    cors_origins: list[str] = field(
        factory=list,
        validator=_check_origins,
        metadata=doc("Sites whose pages may read the tiles: `https://host`, or `*` for all."),
    )
    session_hours: float = field(
        default=12.0,
        validator=number(0.01, 720),
        metadata=doc("How long a login lasts."),
    )
    tile_max_age_s: int = field(
        default=60,
        validator=integer(0, 31_536_000),
        metadata=doc("How long clients may cache a tile without revalidating it, in seconds."),
    )
    upscale_levels: int = field(
        default=0,
        validator=integer(0, UPSCALE_LEVELS_MAX),
        metadata=doc(
            "Cut a missing tile from a coarser one, at most this many levels up; 0 turns this off."
        ),
    )
