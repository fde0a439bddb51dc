"""Secrets that a program gives: as text or hidden, and never shown."""

from pathlib import Path
from typing import Any, cast

import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.config import C11Config, Config, Secret, load_config
from tileferry.entrypoints.config.loader import read_service_api_key
from tileferry.entrypoints.config.setting_names import is_plain_setting
from tileferry.entrypoints.config.settings import format_settings, list_settings
from tileferry.entrypoints.config.xyz import XyzConfig

URL = "postgresql://me:canary@host/db"
PATHS = (
    "database_url",
    "database_listen_url",
    "c11.service_api_key",
    "nats.url",
    "audit.alert_webhook_url",
)


@pytest.fixture(params=["text", "hidden", "loaded"])
def config(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Config:
    if request.param == "text":
        return Config(
            database_url=URL, database_listen_url=URL, c11=C11Config(service_api_key="canary")
        )
    if request.param == "hidden":
        hidden = C11Config(service_api_key=Secret("canary"))
        return Config(database_url=Secret(URL), c11=hidden)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEFERRY_DATABASE_URL", URL)
    monkeypatch.setenv("TILEFERRY_C11_SERVICE_API_KEY", "canary")
    return load_config()


def test_secret_can_be_given_as_text_or_secret(config: Config) -> None:
    assert isinstance(config.database_url, Secret)
    assert config.database_url.get_secret_value() == URL
    assert read_service_api_key(config.c11) == "canary"


def test_secret_is_never_shown(config: Config) -> None:
    settings = list(list_settings(config))
    assert {setting.path for setting in settings if setting.is_secret} == set(PATHS)
    lines = "\n".join(format_settings(settings, origin=True))
    assert 'service_api_key = "***"' in lines
    for text in (lines, repr(config), str(config), repr(config.c11), repr(settings)):
        assert "canary" not in text


@pytest.mark.parametrize("path", PATHS)
def test_secret_settings_are_declared_secret(path: str) -> None:
    assert not is_plain_setting(path, Config)


def test_non_text_secret_is_rejected_and_not_shown() -> None:
    with pytest.raises(InvalidValueError, match="must be text") as refused:
        C11Config(service_api_key=cast("Any", b"canary"))
    assert "canary" not in str(refused.value)


def test_key_in_an_address_is_not_shown() -> None:
    address = "https://tiles.example/{z}/{x}/{y}?appid=canary&v=9fK2xQ7tLm4Zr8Vb"
    config = Config(xyz=XyzConfig(url_template=address))
    lines = "\n".join(format_settings(list_settings(config), origin=True))
    assert '"https://tiles.example/{z}/{x}/{y}?appid=***&v=***"' in lines
