"""HTTP adapters: the imagery provider, plain tile servers, and uploads."""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.adapters.http.client import ProviderAddress, build_user_agent, new_client
    from tileferry.adapters.http.provider import HttpTileProvider
    from tileferry.adapters.http.responses import ResponseLimits
    from tileferry.adapters.http.tile_downloader import HttpTileDownloader
    from tileferry.adapters.http.transport import HttpxTransport, PyreqwestTransport
    from tileferry.adapters.http.uploads import HttpTileUploader
    from tileferry.adapters.http.xyz import XyzTileProvider

__all__ = [
    "HttpTileDownloader",
    "HttpTileProvider",
    "HttpTileUploader",
    "HttpxTransport",
    "ProviderAddress",
    "PyreqwestTransport",
    "ResponseLimits",
    "XyzTileProvider",
    "build_user_agent",
    "new_client",
]
