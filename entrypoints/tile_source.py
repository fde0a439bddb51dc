"""The configured source of tiles: a satellite-provider or a plain tile server."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import evolve

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.domain.tiles import TileTemplate
from tileferry.domain.tiles.server_url import ServerUrl
from tileferry.entrypoints.config import Config

if TYPE_CHECKING:
    import httpx

    from tileferry.entrypoints.config.xyz import XyzConfig

with import_on_call(globals()):
    from tileferry.adapters.http import (
        CurlTransport,
        DescribedTileProvider,
        HttpTileProvider,
        ProviderAddress,
        ResponseLimits,
        XyzTileProvider,
        build_user_agent,
    )
    from tileferry.adapters.http.client import check_key
    from tileferry.adapters.http.tilejson import parse_tilejson
    from tileferry.adapters.http.wmts_capabilities import WmtsChoice, parse_capabilities
    from tileferry.adapters.system import SystemClock
    from tileferry.application.download.fallback import FallbackAbsentTiles, FallbackTileProvider
    from tileferry.application.ports.provider import TileProvider
    from tileferry.application.ports.tiles import AbsentTiles
    from tileferry.domain.errors import NotPermittedError
    from tileferry.domain.text import printable
    from tileferry.domain.tiles import TileServer
    from tileferry.domain.tiles.tile_server import compute_identity
    from tileferry.entrypoints.config.loader import read_key_file, read_service_api_key
    from tileferry.entrypoints.config.xyz import build_tile_server, parse_imagery_date


def find_server_address(config: Config) -> ServerUrl | None:
    """Return the address of the configured tile server, or of its document, if any.

    Raises if a required setting is missing, or if bulk downloads are not permitted, as far as that
    is known without the document.
    """
    places = [f"xyz.{name}" for name in config.xyz.address_settings]
    if config.c11.satellite_provider_url is not None:
        places.append("c11.satellite_provider_url")
    return _check_server(config.xyz, places)


def _check_server(xyz: "XyzConfig", places: Sequence[str]) -> ServerUrl | None:
    address = xyz.build_address()
    if address is None:
        return None
    if len(places) > 1:
        raise InvalidValueError(
            field=places[0],
            value=None,
            problem=f"is set, and so is {places[1]}",
            remedy="tiles come from one place: set one of the two",
        )
    if isinstance(address, TileTemplate):
        build_tile_server(xyz, address).check_permitted()
    else:
        # Missing settings are reported now, not when the document has been read.
        build_tile_server(xyz, TileTemplate(f"{address.origin}/{{z}}/{{x}}/{{y}}"))
    return address


def build_provider_address(config: Config) -> ProviderAddress:
    """Return the address of the source, and the API key sent with every request."""
    c11, server = config.c11, find_server_address(config)
    if server is not None:
        return _build_server_address(config, config.xyz, server)
    if c11.satellite_provider_url is None:
        raise InvalidValueError(
            field="c11.satellite_provider_url",
            value=None,
            problem="is not set",
            remedy="set it in tileferry.toml, or in TILEFERRY_C11_SATELLITE_PROVIDER_URL; or set "
            "xyz.url_template, for a plain tile server",
        )
    return ProviderAddress(
        url=c11.satellite_provider_url,
        service_api_key=read_service_api_key(c11),
        ca_file=c11.ca_file,
        timeout_s=c11.http_timeout_s,
        connections=c11.max_concurrent_requests,
    )


def _build_server_address(config: Config, xyz: "XyzConfig", server: ServerUrl) -> ProviderAddress:
    return ProviderAddress(
        url=server.origin,
        service_api_key=None,
        ca_file=config.c11.ca_file,
        timeout_s=config.c11.http_timeout_s,
        connections=config.c11.max_concurrent_requests,
        user_agent=build_user_agent(xyz.user_agent_contact),
        plain_http_hosts=server.plain_http_hosts,
    )


def build_tile_provider(
    config: Config,
    client: "httpx.Client",
    lane: CurlTransport,
    clock: SystemClock,
    limits: ResponseLimits,
) -> TileProvider:
    """Return the client of the first source."""
    source, address = config.source, find_server_address(config)
    if address is None:
        return HttpTileProvider(client=client, lane=lane, clock=clock, source=source, limits=limits)
    key = read_service_api_key(config.c11) if needs_key(config) else ""
    parts = {"lane": lane, "clock": clock, "source": source, "limits": limits}
    return _build_server_provider(config.xyz, address, key, **parts)


def open_secondary_provider(
    config: Config, clock: SystemClock, limits: ResponseLimits
) -> Iterator[TileProvider | None]:
    """Open the client of the secondary tile server; ``None`` if there is none."""
    secondary = config.secondary
    address = _check_server(secondary, [f"secondary.{name}" for name in secondary.address_settings])
    if address is None:
        yield None
        return
    if address.source == config.source:
        raise InvalidValueError(
            field=address.setting,
            value=None,
            problem=f"has the source name of the first source, {config.source}",
            remedy="set c11.source to another name",
        )
    key = _read_secondary_key(config) if address.has_key else ""
    lane = CurlTransport(_build_server_address(config, secondary, address))
    parts = {"lane": lane, "clock": clock, "source": address.source, "limits": limits}
    yield _build_server_provider(secondary, address, key, states_facts=True, **parts)
    lane.close()


def _read_secondary_key(config: Config) -> str:
    """Return the key of the secondary; the key of the first source is never sent to it."""
    file, setting = config.secondary.api_key_file, "secondary.api_key_file"
    if file is None:
        raise InvalidValueError(
            field=setting,
            value=None,
            problem="is not set",
            remedy="put the key of this server into a file with mode 0600, and name it",
        )
    return read_key_file(file, field=setting)


def build_ordered_provider(primary: TileProvider, secondary: TileProvider | None) -> TileProvider:
    """Return what fetches from the first source, and holes from the second, if there is one."""
    if secondary is None:
        return primary
    return FallbackTileProvider(primary=primary, secondary=secondary)


def build_absent_tiles(config: Config, stored: AbsentTiles) -> AbsentTiles:
    """Return the memory of absent tiles; with two sources, a tile is absent if both lack it."""
    address = config.secondary.build_address()
    return (
        stored if address is None else FallbackAbsentTiles(inner=stored, secondary=address.source)
    )


def _build_server_provider(
    xyz: "XyzConfig", address: ServerUrl, key: str, **parts: Any
) -> XyzTileProvider | DescribedTileProvider:
    if isinstance(address, TileTemplate):
        server = build_tile_server(xyz, address)
        return XyzTileProvider(server=server, api_key=key, **parts)
    return DescribedTileProvider(
        document=address,
        read_server=partial(_read_server, xyz, address, key),
        key_hash=_compute_document_identity(xyz, address, key),
        api_key=key,
        **parts,
    )


def _read_server(xyz: "XyzConfig", document: ServerUrl, key: str, content: bytes) -> TileServer:
    """Return the server that a document describes, with the settings that apply to it."""
    url = document.fill_in_key()
    if xyz.tilejson_url is not None:
        found = parse_tilejson(content, url=url)
    else:
        choice = WmtsChoice(
            layer=xyz.wmts_layer, style=xyz.wmts_style, matrix_set=xyz.wmts_matrix_set
        )
        found = parse_capabilities(content, choice, url=url)
    template = found.build_template(document, key=key, tile_px=xyz.tile_size_px)
    return build_tile_server(xyz, template, zooms=found.zooms, bounds=found.bounds)


def _compute_document_identity(xyz: "XyzConfig", document: ServerUrl, key: str) -> str:
    chosen = (document.text, xyz.wmts_layer, xyz.wmts_style, xyz.wmts_matrix_set)
    return compute_identity(
        "|".join(text or "" for text in chosen),
        parse_imagery_date(xyz),
        key,
        tile_px=xyz.tile_size_px,
    )


def get_address_setting(config: Config) -> str:
    """Return the setting that has the address of the source in use."""
    name = config.xyz.address_setting
    return "c11.satellite_provider_url" if name is None else f"xyz.{name}"


def suggest_access_settings(config: Config) -> str:
    """Return which settings of the source in use to check when it refuses access."""
    address = get_address_setting(config)
    if not needs_key(config):
        return f"{address} and c11.ca_file; the server may also refuse this address"
    return f"c11.service_api_key_file or TILEFERRY_C11_SERVICE_API_KEY, {address}, and c11.ca_file"


def needs_key(config: Config) -> bool:
    """Return whether an API key is required: by a provider, or by a tile server's URL template."""
    address = config.xyz.build_address()
    return address is None or address.has_key


def check_configured_key(config: Config) -> None:
    """Reject a key that cannot be sent in a request; the error names its origin."""
    key, address, file = (
        read_service_api_key(config.c11),
        config.xyz.build_address(),
        config.c11.service_api_key_file,
    )
    try:
        check_key(key)
        if address is not None:
            address.check_key(key)
    except InvalidValueError as error:
        if file is None:
            raise
        raise evolve(
            error, field="c11.service_api_key_file", remedy=f"write the key into {file}"
        ) from None


def check_accepts_uploads(config: Config) -> None:
    """Raise if the configured source is a tile server, which has no uploads."""
    if config.xyz.is_set:
        raise NotPermittedError(
            what="uploading to a plain tile server",
            problem="it serves tiles and accepts no uploads",
            remedy="to upload, set c11.satellite_provider_url instead of "
            f"{get_address_setting(config)}",
        )


def get_max_requests_per_s(config: Config) -> float | None:
    """Return the configured limit of tile requests per second, or ``None``."""
    return config.xyz.max_requests_per_second if config.xyz.is_set else None


def get_credits(config: Config) -> dict[str, str | None]:
    """Return the attribution and licence of the imagery; ``None`` where not configured."""
    used = [server for server in (config.xyz, config.secondary) if server.is_set]
    return {
        name: "; ".join(filter(None, (getattr(server, name) for server in used))) or None
        for name in ("attribution", "licence")
    }


def format_credits(config: Config) -> str | None:
    """Return attribution and licence as one text, or ``None``."""
    said = [printable(text) for text in get_credits(config).values() if text]
    return f"Pictures: {', '.join(said)}" if said else None
