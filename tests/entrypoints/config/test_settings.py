"""What counts, where it came from, and a file that has it all."""

import re
import tomllib
from pathlib import Path

import attrs
import pytest

from tileferry.domain.retry import DOWNLOAD_POLICY, RetryBudget
from tileferry.entrypoints.config import C11Config, Config, load_config
from tileferry.entrypoints.config.policies import build_download_policy, build_retry_budget
from tileferry.entrypoints.config.settings import (
    Setting,
    build_template,
    format_settings,
    list_settings,
    to_plain,
    to_toml,
)

CANARY = "canary-4711"


def settings_by_path(file: Path | None = None) -> dict[str, Setting]:
    return {setting.path: setting for setting in list_settings(load_config(file), file)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "own.toml"
    file.write_text(
        "[tileferry.c11]\nsource = 'other'\nmax_5xx_retries = 2\n"
        "[tileferry.areas]\nderkachi = '36.0,50.0,36.3,50.2'\n"
        "[tileferry.retry.KV_GET]\nmax_attempts = 5\n"
    )
    return file


def test_origin_is_variable_then_file_then_default(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEFERRY_C11_MAX_5XX_RETRIES", "3")
    settings = settings_by_path(file)
    assert settings["c11.max_5xx_retries"].value == 3
    assert settings["c11.max_5xx_retries"].origin == "TILEFERRY_C11_MAX_5XX_RETRIES"
    assert (settings["c11.source"].value, settings["c11.source"].origin) == ("other", str(file))
    assert settings["c11.http_timeout_s"].origin == "default"
    assert settings["areas"].origin == str(file)
    assert settings["retry.KV_GET.max_attempts"].origin == str(file)


def test_shown_variable_is_the_one_that_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for setting in settings_by_path().values():
        if isinstance(setting.value, float):
            with monkeypatch.context() as patch:
                patch.setenv(setting.variable, "nonsense")
                with pytest.raises(Exception, match=re.escape(setting.path)):
                    load_config()


def test_secret_is_never_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEFERRY_C11_SERVICE_API_KEY", CANARY)
    monkeypatch.setenv("TILEFERRY_DATABASE_URL", f"postgresql://u:{CANARY}@h/d")
    settings = settings_by_path()
    assert settings["c11.service_api_key"].value == "***"
    assert settings["database_url"].value == "***"
    assert CANARY not in "\n".join(format_settings(settings.values(), origin=True))


def test_shown_settings_can_be_loaded_back(file: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.toml"
    again.write_text(
        "\n".join(format_settings(list_settings(load_config(file), file), origin=True))
    )
    assert load_config(again) == load_config(file)


def test_unset_settings_are_shown_as_comments(tmp_path: Path) -> None:
    lines = list(format_settings(list_settings(Config(), tmp_path / "none"), origin=False))
    assert "# ca_file = (not set)" in lines
    assert not any("max_attempts" in line for line in lines if "KV_GET" in line)


def test_template_sets_nothing(tmp_path: Path) -> None:
    file = tmp_path / "tileferry.toml"
    file.write_text(build_template())
    assert load_config(file) == Config()


def test_template_has_every_setting_and_is_valid_uncommented(tmp_path: Path) -> None:
    text = re.sub(r"^# ([a-z_0-9]+ = |\[)", r"\1", build_template(), flags=re.MULTILINE)
    file = tmp_path / "tileferry.toml"
    file.write_text(text)
    load_config(file)
    tables = tomllib.loads(text)["tileferry"]
    for setting in list_settings(Config()):
        if setting.section.startswith("retry."):
            continue
        assert setting.about, setting.path
        if setting.is_secret:
            assert setting.variable in text
            continue
        table = tables[setting.section] if setting.section else tables
        assert setting.name in table, setting.path


@pytest.mark.parametrize(
    "value", [True, 3, 2.5, 'a "b"', ["x", 1], {"a b": "c"}, {}, "Харків"], ids=repr
)
def test_toml_values_round_trip(value: bool | float | str | list[object]) -> None:  # noqa: FBT001  # a value like others
    assert tomllib.loads(f"value = {to_toml(value)}")["value"] == value


def test_non_plain_value_raises_type_error() -> None:
    assert to_plain(Path("a/b")) == "a/b"
    with pytest.raises(TypeError, match="Attribute"):
        to_plain(attrs.fields(Config)[0])


def test_defaults_of_requests_follow_the_domain() -> None:
    policy = build_download_policy(C11Config())
    assert policy == DOWNLOAD_POLICY
    assert policy.max_retry_after_s == 300.0
    assert build_retry_budget(C11Config()) == RetryBudget()
