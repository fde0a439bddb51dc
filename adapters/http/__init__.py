"""The imagery provider over HTTP."""

from tileferry.adapters.http.client import ProviderAddress, new_client, user_agent
from tileferry.adapters.http.fast_lane import FastLane
from tileferry.adapters.http.lanes import HttpxLane
from tileferry.adapters.http.provider import HttpTileProvider
from tileferry.adapters.http.responses import ResponseLimits
from tileferry.adapters.http.tile_downloader import HttpTileDownloader
from tileferry.adapters.http.tile_uploader import HttpTileUploader
from tileferry.adapters.http.xyz import XyzTileProvider

__all__ = [
    "FastLane",
    "HttpTileDownloader",
    "HttpTileProvider",
    "HttpTileUploader",
    "HttpxLane",
    "ProviderAddress",
    "ResponseLimits",
    "XyzTileProvider",
    "new_client",
    "user_agent",
]
