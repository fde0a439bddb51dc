"""The configured source of tiles: a satellite-provider or a plain tile server."""

from typing import TYPE_CHECKING

from attrs import evolve

from tileferry.domain.errors import InvalidValueError, NotPermittedError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.entrypoints.config import Config

if TYPE_CHECKING:
    import httpx

with import_on_call(globals()):
    from tileferry.adapters.http import (
        CurlTransport,
        HttpTileProvider,
        ProviderAddress,
        ResponseLimits,
        XyzTileProvider,
        build_user_agent,
    )
    from tileferry.adapters.http.client import check_key
    from tileferry.adapters.system import SystemClock
    from tileferry.application.ports.provider import TileProvider
    from tileferry.domain.text import printable
    from tileferry.domain.tiles import TileServer
    from tileferry.entrypoints.config.loader import read_service_api_key
    from tileferry.entrypoints.config.xyz import build_tile_server


def find_tile_server(config: Config) -> TileServer | None:
    """Return the configured tile server, if any; check that bulk downloads are permitted."""
    if config.xyz.url_template is None:
        return None
    if config.c11.satellite_provider_url is not None:
        raise InvalidValueError(
            field="xyz.url_template",
            value=None,
            problem="is set, and so is c11.satellite_provider_url",
            remedy="tiles come from one place: set one of the two",
        )
    server = build_tile_server(config.xyz)
    server.check_permitted()
    return server


def build_provider_address(config: Config) -> ProviderAddress:
    """Return the address of the source, and the API key sent with every request."""
    c11, server = config.c11, find_tile_server(config)
    if server is not None:
        return ProviderAddress(
            url=server.template.origin,
            service_api_key=None,
            ca_file=c11.ca_file,
            timeout_s=c11.http_timeout_s,
            connections=c11.max_concurrent_requests,
            user_agent=build_user_agent(config.xyz.user_agent_contact),
            plain_http_hosts=server.template.plain_http_hosts,
        )
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


def build_tile_provider(
    config: Config,
    client: "httpx.Client",
    lane: CurlTransport,
    clock: SystemClock,
    limits: ResponseLimits,
) -> TileProvider:
    """Return the client of the configured source."""
    source, server = config.source, find_tile_server(config)
    if server is None:
        return HttpTileProvider(client=client, lane=lane, clock=clock, source=source, limits=limits)
    return XyzTileProvider(
        server=server,
        lane=lane,
        clock=clock,
        api_key=read_service_api_key(config.c11) if needs_key(config) else "",
        source=source,
        limits=limits,
    )


def get_address_setting(config: Config) -> str:
    """Return the setting that has the address of the source in use."""
    is_plain = config.xyz.url_template is not None
    return "xyz.url_template" if is_plain else "c11.satellite_provider_url"


def suggest_access_settings(config: Config) -> str:
    """Return which settings of the source in use to check when it refuses access."""
    address = get_address_setting(config)
    if not needs_key(config):
        return f"{address} and c11.ca_file; the server may also refuse this address"
    return f"c11.service_api_key_file or TILEFERRY_C11_SERVICE_API_KEY, {address}, and c11.ca_file"


def needs_key(config: Config) -> bool:
    """Return whether an API key is required: by a provider, or by a tile server's URL template."""
    template = config.xyz.build_template()
    return template is None or template.has_key


def check_configured_key(config: Config) -> None:
    """Reject a key that cannot be sent in a request; the error names its origin."""
    key, template, file = (
        read_service_api_key(config.c11),
        config.xyz.build_template(),
        config.c11.service_api_key_file,
    )
    try:
        check_key(key)
        if template is not None:
            template.check_key(key)
    except InvalidValueError as error:
        if file is None:
            raise
        raise evolve(
            error, field="c11.service_api_key_file", remedy=f"write the key into {file}"
        ) from None


def check_accepts_uploads(config: Config) -> None:
    """Raise if the configured source is a tile server, which has no uploads."""
    if config.xyz.url_template is not None:
        raise NotPermittedError(
            what="uploading to a plain tile server",
            problem="it serves tiles and accepts no uploads",
            remedy="to upload, set c11.satellite_provider_url instead of xyz.url_template",
        )


def get_max_requests_per_s(config: Config) -> float | None:
    """Return the configured limit of tile requests per second, or ``None``."""
    return None if config.xyz.url_template is None else config.xyz.max_requests_per_second


def get_credits(config: Config) -> dict[str, str | None]:
    """Return the attribution and licence of the imagery; ``None`` where not configured."""
    xyz = config.xyz
    if xyz.url_template is None:
        return {"attribution": None, "licence": None}
    return {"attribution": xyz.attribution, "licence": xyz.licence}


def format_credits(config: Config) -> str | None:
    """Return attribution and licence as one text, or ``None``."""
    said = [printable(text) for text in get_credits(config).values() if text]
    return f"Pictures: {', '.join(said)}" if said else None
