"""The imagery provider over HTTP."""

from tileferry.adapters.http.client import ProviderAddress, new_client
from tileferry.adapters.http.provider import HttpTileProvider
from tileferry.adapters.http.responses import ResponseLimits
from tileferry.adapters.http.tile_downloader import HttpTileDownloader

__all__ = [
    "HttpTileDownloader",
    "HttpTileProvider",
    "ProviderAddress",
    "ResponseLimits",
    "new_client",
]
