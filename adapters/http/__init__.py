"""HTTP adapters: the imagery provider, plain tile servers, and uploads."""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.adapters.http.client import ProviderAddress, build_user_agent, new_client
    from tileferry.adapters.http.curl_transport import CurlTransport
    from tileferry.adapters.http.described import DescribedTileProvider
    from tileferry.adapters.http.provider import HttpTileProvider
    from tileferry.adapters.http.tile_downloader import HttpTileDownloader
    from tileferry.adapters.http.transport import HttpxTransport, ResponseLimits
    from tileferry.adapters.http.uploads import HttpTileUploader
    from tileferry.adapters.http.xyz import XyzTileProvider

__all__ = [
    "CurlTransport",
    "DescribedTileProvider",
    "HttpTileDownloader",
    "HttpTileProvider",
    "HttpTileUploader",
    "HttpxTransport",
    "ProviderAddress",
    "ResponseLimits",
    "XyzTileProvider",
    "build_user_agent",
    "new_client",
]
