"""An operator and a provider to download from; other modules have operators of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.area_operator import AreaOperator
from support.download_site import DERKACHI, ZOOM
from support.scripted_provider import ScriptedProvider


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider.of_area(DERKACHI, ZOOM, 20)


@pytest.fixture
def operator(
    tmp_path: Path,
    database_url: str,
    provider: ScriptedProvider,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[AreaOperator]:
    """An operator in this process; each call to the provider is made once."""
    with provider.served() as url:
        person = AreaOperator(tmp_path, database_url, url)
        monkeypatch.chdir(tmp_path)
        for name, value in person.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("TILEFERRY_C11_MAX_5XX_RETRIES", "0")
        yield person
