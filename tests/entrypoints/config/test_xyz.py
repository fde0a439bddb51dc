"""Where tiles come from, by the configuration."""

from importlib.metadata import version
from pathlib import Path

import pytest

from tileferry.adapters.http import HttpTileProvider, XyzTileProvider
from tileferry.domain.errors import InvalidValueError, NotPermittedError
from tileferry.entrypoints.config import Config, load_config
from tileferry.entrypoints.config.settings import list_settings
from tileferry.entrypoints.container import Container
from tileferry.entrypoints.tile_source import (
    build_provider_address,
    format_credits,
    get_credits,
    get_max_requests_per_s,
    needs_key,
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


def load_text(folder: Path, text: str) -> Config:
    file = folder / "tileferry.toml"
    file.write_text(text, encoding="utf-8")
    return load_config(file)


def server_without(name: str) -> str:
    return "\n".join(line for line in SERVER.splitlines() if not line.startswith(name))


@pytest.fixture(autouse=True)
def set_api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFERRY_C11_SERVICE_API_KEY", KEY)


def test_xyz_server_gets_no_authorization_header(tmp_path: Path) -> None:
    config = load_text(tmp_path, SERVER + 'user_agent_contact = "maps@example.org"')
    found = build_provider_address(config)
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


def test_provider_is_used_without_xyz_server(tmp_path: Path) -> None:
    config = load_text(tmp_path, '[tileferry.c11]\nsatellite_provider_url = "https://sat.example"')
    container = Container(config=config)
    assert isinstance(container.provider(), HttpTileProvider)
    container.shutdown_resources()
    assert needs_key(config)
    assert get_credits(config) == {"attribution": None, "licence": None}
    assert format_credits(config) is None
    assert get_max_requests_per_s(config) is None


def test_xyz_server_has_attribution_and_rate_limit(tmp_path: Path) -> None:
    config = load_text(tmp_path, SERVER)
    assert format_credits(config) == "Pictures: © Example, CC-BY-4.0"
    assert get_max_requests_per_s(config) == 5.0
    assert needs_key(config)
    assert not needs_key(load_text(tmp_path, SERVER.replace("?key={api_key}", "")))


def test_xyz_server_has_its_own_source(tmp_path: Path) -> None:
    plain = SERVER.replace(":8443", "")
    assert load_text(tmp_path, "").source == "satellite"
    config = load_text(tmp_path, plain)
    assert config.source == "xyz-tiles.example.org"
    assert {setting.path: setting.value for setting in list_settings(config)}[
        "c11.source"
    ] == config.source
    container = Container(config=config)
    provider = container.provider()
    assert isinstance(provider, XyzTileProvider)
    assert provider.source == config.source
    container.shutdown_resources()
    assert (
        load_text(tmp_path, f"{plain}[tileferry.c11]\nsource = 'satellite'").source == "satellite"
    )


@pytest.mark.parametrize("name", ["attribution", "licence", "imagery_date"])
def test_missing_required_xyz_setting_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidValueError, match="is not set") as refused:
        build_provider_address(load_text(tmp_path, server_without(name)))
    assert refused.value.field == f"xyz.{name}"


def test_missing_bulk_download_acknowledgement_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(NotPermittedError, match=r'= "tiles\.example\.org:8443"'):
        build_provider_address(load_text(tmp_path, server_without("bulk_download")))


def test_key_is_required_only_if_template_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TILEFERRY_C11_SERVICE_API_KEY")
    container = Container(config=load_text(tmp_path, SERVER))
    with pytest.raises(InvalidValueError, match=r"c11\.service_api_key"):
        container.provider()
    container.shutdown_resources()
    container = Container(config=load_text(tmp_path, SERVER.replace("?key={api_key}", "")))
    assert container.provider().key_hash
    container.shutdown_resources()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('url_template = "https://{S}.example.org/{z}/{x}/{y}"', "unknown placeholder"),
        ('url_template = "http://nas/{z}/{x}/{y}"', "over plain http"),
        ("subdomains = []", "host labels"),
        ('subdomains = ["a b"]', "host labels"),
        ("tile_size_px = 300", "256 or 512"),
        ('plain_http_hosts = ["http://nas"]', "not a host name"),
        ('plain_http_hosts = ["8.8.8.8"]', "not a host name"),
        ('sample_tile = "3/9/1"', "is not a tile"),
        ('imagery_date = "2026-5-1"', "is not a date"),
        ("max_requests_per_second = 0", "from 0.01 to 100"),
        ("max_tiles_per_download = 0", "from 1 to"),
        ("estimated_tile_bytes = 0", "from 1 to"),
        ('user_agent_contact = "(me)"', "without brackets"),
        ('user_agent_contact = ""', "without brackets"),
    ],
)
def test_invalid_xyz_setting_is_rejected_on_load(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(InvalidValueError, match=said) as refused:
        load_text(tmp_path, f"[tileferry.xyz]\n{line}")
    assert refused.value.field == f"xyz.{line.partition(' ')[0]}"
