"""Where tiles come from, by the configuration."""

from importlib.metadata import version
from pathlib import Path

import pytest

from tileferry.adapters.http import HttpTileProvider, XyzTileProvider
from tileferry.domain.errors import InvalidValueError, NotPermittedError
from tileferry.entrypoints.config import Config, load_config
from tileferry.entrypoints.config.settings import settings_of
from tileferry.entrypoints.container import Container
from tileferry.entrypoints.sources import (
    address,
    credit_line,
    credits_of,
    needs_key,
    requests_per_s_max,
)

KEY = "canary-5f1e9d0c"
SERVER = """
[tileferry.xyz]
url_template = "https://tiles.example.org:8443/{z}/{x}/{-y}.png?key={api_key}"
attribution = "© Example"
licence = "CC-BY-4.0"
imagery_date = 2026-05-01
bulk_download_acknowledged_for = "tiles.example.org:8443"
"""


def configured(folder: Path, text: str) -> Config:
    file = folder / "tileferry.toml"
    file.write_text(text, encoding="utf-8")
    return load_config(file)


def without(name: str) -> str:
    return "\n".join(line for line in SERVER.splitlines() if not line.startswith(name))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFERRY_C11_SERVICE_API_KEY", KEY)


def test_a_tile_server_is_asked_at_its_origin_and_gets_no_authorization(tmp_path: Path) -> None:
    config = configured(tmp_path, SERVER + 'user_agent_contact = "maps@example.org"')
    found = address(config)
    assert found.url == "https://tiles.example.org:8443"
    agent = f"tileferry/{version('tileferry')} (maps@example.org)"
    assert found.headers == {"Accept-Encoding": "identity", "User-Agent": agent}
    container = Container(config=config)
    provider = container.provider()
    assert isinstance(provider, XyzTileProvider)
    assert provider.api_key == KEY
    assert KEY not in repr(provider)
    assert provider.server.imagery_date.isoformat() == "2026-05-01"
    container.shutdown_resources()


def test_without_one_it_is_the_provider(tmp_path: Path) -> None:
    config = configured(tmp_path, '[tileferry.c11]\nsatellite_provider_url = "https://sat.example"')
    container = Container(config=config)
    assert isinstance(container.provider(), HttpTileProvider)
    container.shutdown_resources()
    assert needs_key(config)
    assert credits_of(config) == {"attribution": None, "licence": None}
    assert credit_line(config) is None
    assert requests_per_s_max(config) is None


def test_a_tile_server_has_credits_and_a_pace(tmp_path: Path) -> None:
    config = configured(tmp_path, SERVER)
    assert credit_line(config) == "Pictures: © Example, CC-BY-4.0"
    assert requests_per_s_max(config) == 5.0
    assert needs_key(config)
    assert not needs_key(configured(tmp_path, SERVER.replace("?key={api_key}", "")))


def test_a_tile_server_s_pictures_have_a_source_of_their_own(tmp_path: Path) -> None:
    plain = SERVER.replace(":8443", "")
    assert configured(tmp_path, "").source == "satellite"
    config = configured(tmp_path, plain)
    assert config.source == "xyz-tiles.example.org"
    assert {setting.path: setting.value for setting in settings_of(config)}[
        "c11.source"
    ] == config.source
    container = Container(config=config)
    provider = container.provider()
    assert isinstance(provider, XyzTileProvider)
    assert provider.source == config.source
    container.shutdown_resources()
    assert (
        configured(tmp_path, f"{plain}[tileferry.c11]\nsource = 'satellite'").source == "satellite"
    )


@pytest.mark.parametrize("name", ["attribution", "licence", "imagery_date"])
def test_what_must_be_said_and_is_not_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidValueError, match="is not set") as refused:
        address(configured(tmp_path, without(name)))
    assert refused.value.field == f"xyz.{name}"


def test_nobody_s_word_is_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(NotPermittedError, match=r'= "tiles\.example\.org:8443"'):
        address(configured(tmp_path, without("bulk_download")))


def test_a_key_is_missed_only_where_it_has_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TILEFERRY_C11_SERVICE_API_KEY")
    container = Container(config=configured(tmp_path, SERVER))
    with pytest.raises(InvalidValueError, match=r"c11\.service_api_key"):
        container.provider()
    container.shutdown_resources()
    container = Container(config=configured(tmp_path, SERVER.replace("?key={api_key}", "")))
    assert container.provider().key_hash
    container.shutdown_resources()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('url_template = "https://{s}.example.org/{z}/{x}/{y}"', "placeholder that is not known"),
        ('imagery_date = "2026-5-1"', "is not a date"),
        ("max_requests_per_second = 0", "from 0.01 to 100"),
        ("max_tiles_per_download = 0", "from 1 to"),
        ("estimated_tile_bytes = 0", "from 1 to"),
        ('user_agent_contact = "(me)"', "without brackets"),
        ('user_agent_contact = ""', "without brackets"),
    ],
)
def test_a_value_that_cannot_be_is_found_when_it_is_read(
    tmp_path: Path, line: str, said: str
) -> None:
    with pytest.raises(InvalidValueError, match=said) as refused:
        configured(tmp_path, f"[tileferry.xyz]\n{line}")
    assert refused.value.field == f"xyz.{line.partition(' ')[0]}"
