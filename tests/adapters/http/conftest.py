"""Both transports to a provider, and a real cache to download to."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.download_env import (
    DERKACHI,
    ZOOM,
    DownloadEnv,
    NewDownloadEnv,
    open_real_download_env,
)
from support.hostile_provider import TRANSPORTS, use_transport
from support.scripted_provider import ScriptedProvider

from tileferry.adapters.postgres import Database


@pytest.fixture(params=TRANSPORTS)
def lane(request: pytest.FixtureRequest) -> Iterator[str]:
    """Hold both transports to the same rules."""
    with use_transport(request.param):
        yield request.param


@pytest.fixture
def new_download_env(tmp_path: Path, database: Database) -> Iterator[NewDownloadEnv]:
    """Download over real HTTP into a real cache."""
    with ExitStack() as stack:

        def new(count: int) -> DownloadEnv:
            provider = ScriptedProvider.for_area(DERKACHI, ZOOM, count)
            return stack.enter_context(open_real_download_env(tmp_path, provider, database))

        yield new
