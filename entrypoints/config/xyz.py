"""``[tileferry.xyz]``: a plain tile server as the source of tiles."""

from datetime import date
from pathlib import Path
from typing import Any, ClassVar

from attrs import evolve, field, frozen, validators

from tileferry.domain.addresses import is_host, is_public_address
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.tiles import TileId, TileTemplate
from tileferry.domain.tiles.limits import (
    AREA_TILES_MAX,
    ESTIMATED_TILE_BYTES,
    REQUESTS_PER_S,
    REQUESTS_PER_S_MAX,
    REQUESTS_PER_S_MIN,
    TILE_BYTES_MAX,
    TILES_PER_DOWNLOAD,
)
from tileferry.domain.tiles.server_url import ServerUrl
from tileferry.domain.tiles.tile_template import SUBDOMAINS, TILE_SIDES_PX
from tileferry.domain.validation import integer, number, parse_date
from tileferry.entrypoints.config.fields import doc

with import_on_call(globals()):
    from tileferry.domain.tiles import RequestSpacing, TileServer

_CONTACT_CHARS_MAX = 200
SAMPLE_SOURCE = "sample"
TEMPLATE = "url_template"
ADDRESSES = (TEMPLATE, "tilejson_url", "wmts_url")


def _check_subdomains(instance: "XyzConfig", _attribute: object, names: list[str]) -> None:
    if not names or not all(map(is_host, names)):
        raise InvalidValueError(
            field=f"{instance.section}.subdomains",
            value=names,
            problem="must be a list of host labels, such as a, b and c",
        )


def _check_tile_size(instance: "XyzConfig", _attribute: object, side_px: int) -> None:
    if side_px not in TILE_SIDES_PX:
        raise InvalidValueError(
            field=f"{instance.section}.tile_size_px", value=side_px, problem="must be 256 or 512"
        )


def _check_plain_http_hosts(instance: "XyzConfig", _attribute: object, hosts: list[str]) -> None:
    for host in hosts:
        if not is_host(host) or is_public_address(host):
            raise InvalidValueError(
                field=f"{instance.section}.plain_http_hosts",
                value=host,
                problem="is not a host name, or an IP address of a local network",
                remedy="name only hosts in your own network, without a port",
            )


def _check_sample_tile(instance: "XyzConfig", _attribute: object, text: str) -> None:
    _parse_sample_tile(instance, text)


def _parse_sample_tile(xyz: "XyzConfig", text: str) -> TileId:
    try:
        return TileId.parse(f"{SAMPLE_SOURCE}/{text}")
    except InvalidValueError:
        raise InvalidValueError(
            field=f"{xyz.section}.sample_tile",
            value=text,
            problem="is not a tile, such as 14/9830/5544",
        ) from None


def _check_date(instance: "XyzConfig", _attribute: object, text: str | None) -> None:
    if text is not None and parse_date(text) is None:
        raise InvalidValueError(
            field=f"{instance.section}.imagery_date",
            value=text,
            problem="is not a date such as 2026-05-01",
        )


def _check_contact(instance: "XyzConfig", _attribute: object, contact: str) -> None:
    plain = contact.isascii() and contact.isprintable() and len(contact) <= _CONTACT_CHARS_MAX
    if not plain or not contact.strip() or set("()\\") & set(contact):
        raise InvalidValueError(
            field=f"{instance.section}.user_agent_contact",
            value=contact,
            problem="must be an address or a URL in plain ASCII, without brackets",
        )


@frozen(kw_only=True)
class XyzConfig:
    """A plain tile server, used instead of a satellite-provider."""

    section: ClassVar[str] = "xyz"
    url_template: str | None = field(
        default=None,
        metadata=doc(
            "Address of a tile. `{-y}` instead of `{y}` counts rows from the south; `{q}` is the "
            "quadkey; `{s}` or `{a-c}` is one of several servers; `{r}` is `@2x` for tiles of 512 "
            "pixels; `{api_key}` is replaced by the API key of `c11`.",
            "https://tiles.example.org/{z}/{x}/{y}.png",
        ),
    )
    tilejson_url: str | None = field(
        default=None,
        metadata=doc(
            "Address of the server's TileJSON, instead of `url_template`.",
            "https://tiles.example.org/tiles.json",
        ),
    )
    wmts_url: str | None = field(
        default=None,
        metadata=doc(
            "Address of the server's WMTS capabilities, instead of `url_template`.",
            "https://tiles.example.org/wmts/1.0.0/WMTSCapabilities.xml",
        ),
    )
    wmts_layer: str | None = field(
        default=None,
        metadata=doc("Layer of the WMTS; without it, the only one.", "imagery"),
    )
    wmts_style: str | None = field(
        default=None,
        metadata=doc("Style of the layer; without it, its default.", "default"),
    )
    wmts_matrix_set: str | None = field(
        default=None,
        metadata=doc(
            "Tile matrix set of the layer; without it, the first of Web Mercator.",
            "GoogleMapsCompatible",
        ),
    )
    subdomains: list[str] = field(
        factory=lambda: list(SUBDOMAINS),
        validator=_check_subdomains,
        metadata=doc("What `{s}` stands for."),
    )
    tile_size_px: int | None = field(
        default=None,
        validator=validators.optional(_check_tile_size),
        metadata=doc("Side of a tile: 256 or 512; without it 512 for `@2x`, else 256.", 512),
    )
    plain_http_hosts: list[str] = field(
        factory=list,
        validator=_check_plain_http_hosts,
        metadata=doc("Hosts in your own network that may be used over http, without a key."),
    )
    sample_tile: str | None = field(
        default=None,
        validator=validators.optional(_check_sample_tile),
        metadata=doc("A tile that the server has; `doctor` requests it.", "14/9830/5544"),
    )
    attribution: str | None = field(
        default=None,
        metadata=doc("Attribution of the imagery; printed and written to exports.", "© Example"),
    )
    licence: str | None = field(
        default=None,
        metadata=doc("Licence of the imagery, or where to read it.", "CC-BY-4.0"),
    )
    bulk_download_acknowledged_for: str | None = field(
        default=None,
        metadata=doc(
            "The host (and port) of `url_template`, once you have read its policy on bulk "
            "downloads and it allows yours.",
            "tiles.example.org",
        ),
    )
    imagery_date: str | None = field(
        default=None,
        validator=_check_date,
        metadata=doc("When the imagery was taken; XYZ servers do not report it.", "2026-05-01"),
    )
    max_requests_per_second: float = field(
        default=REQUESTS_PER_S,
        validator=number(REQUESTS_PER_S_MIN, REQUESTS_PER_S_MAX),
        metadata=doc("Maximum request rate, retries included."),
    )
    max_tiles_per_download: int = field(
        default=TILES_PER_DOWNLOAD,
        validator=integer(1, AREA_TILES_MAX),
        metadata=doc("Larger areas are refused."),
    )
    estimated_tile_bytes: int = field(
        default=ESTIMATED_TILE_BYTES,
        validator=integer(1, TILE_BYTES_MAX),
        metadata=doc("Assumed size of a tile before it is fetched."),
    )
    user_agent_contact: str | None = field(
        default=None,
        validator=validators.optional(_check_contact),
        metadata=doc(
            "Contact for the operator of the server, sent in `User-Agent`.", "maps@example.org"
        ),
    )

    def __attrs_post_init__(self) -> None:
        self.build_address()

    @property
    def address_settings(self) -> list[str]:
        """The names of the settings that have an address of the server; there should be one."""
        return [name for name in ADDRESSES if getattr(self, name) is not None]

    @property
    def address_setting(self) -> str | None:
        """The name of the setting that has the address of the server; ``None``: it is not used."""
        return next(iter(self.address_settings), None)

    @property
    def is_set(self) -> bool:
        """Whether tiles come from this server."""
        return self.address_setting is not None

    def build_address(self) -> ServerUrl | None:
        """Return the template of the tiles, or the address of the document that has it."""
        name = self.address_setting
        hosts = tuple(host.lower() for host in self.plain_http_hosts)
        if name is None:
            return None
        setting = f"{self.section}.{name}"
        if name != TEMPLATE:
            return ServerUrl(getattr(self, name), setting=setting, plain_http_hosts=hosts)
        template = TileTemplate(
            getattr(self, name),
            setting=setting,
            subdomains=tuple(self.subdomains),
            plain_http_hosts=hosts,
        )
        side_px = self.tile_size_px
        return template if side_px is None else evolve(template, tile_px=side_px)


@frozen(kw_only=True)
class SecondaryConfig(XyzConfig):
    """A plain tile server that delivers the tiles that the first source does not have."""

    section: ClassVar[str] = "secondary"
    api_key_file: Path | None = field(
        default=None,
        metadata=doc(
            "File with the API key of this server; its mode must be 0600.",
            "/home/me/.config/tileferry/secondary-key",
        ),
    )


def build_tile_server(xyz: XyzConfig, template: TileTemplate, **described: Any) -> TileServer:
    """Return the tile server; raise if a required setting is missing."""
    return TileServer(
        template=template,
        attribution=_require(
            xyz, "attribution", "set it to the attribution that the server's terms require"
        ),
        licence=_require(
            xyz, "licence", "set it to the licence of the imagery, or where to read it"
        ),
        imagery_date=parse_imagery_date(xyz),
        acknowledged_for=xyz.bulk_download_acknowledged_for,
        estimated_tile_bytes=xyz.estimated_tile_bytes,
        max_tiles_per_download=xyz.max_tiles_per_download,
        spacing=RequestSpacing(max_per_s=xyz.max_requests_per_second),
        sample=None if xyz.sample_tile is None else _parse_sample_tile(xyz, xyz.sample_tile),
        section=xyz.section,
        **described,
    )


def parse_imagery_date(xyz: XyzConfig) -> date:
    remedy = (
        "set it to the date when the imagery was taken, such as 2026-05-01; the freshness check "
        "needs it, and Last-Modified is only the time of the file"
    )
    return date.fromisoformat(_require(xyz, "imagery_date", remedy))


def _require(xyz: XyzConfig, name: str, remedy: str) -> str:
    value: str | None = getattr(xyz, name)
    if not (value and value.strip()):
        raise InvalidValueError(
            field=f"{xyz.section}.{name}", value=None, problem="is not set", remedy=remedy
        )
    return value
