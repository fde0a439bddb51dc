"""``config`` tells what counts and begins a file."""

from pathlib import Path

import pytest
from support.operator import run_in_process
from support.scripted_provider import KEY


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_init_does_not_overwrite_existing_file(tmp_path: Path) -> None:
    assert "tileferry doctor" in run_in_process("config", "init").out
    file = tmp_path / "tileferry.toml"
    begun = file.read_text()
    assert "# satellite_provider_url =" in begun
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("# mine\n")
    ran = run_in_process("config", "init")
    assert (ran.code, ran.out) == (4, "")
    assert "already exists" in ran.err
    assert file.read_text() == "# mine\n"


def test_init_accepts_another_file_name(tmp_path: Path) -> None:
    ran = run_in_process("config", "init", "other.toml", "--json")
    assert ran.json == {"schema": "tileferry.config.init.v1", "file": "other.toml"}
    assert (tmp_path / "other.toml").exists()


def test_user_file_is_written_read_and_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    file = tmp_path / "user" / "tileferry" / "tileferry.toml"
    assert run_in_process("config", "init", "--user", "--json").json["file"] == str(file)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert run_in_process("config", "init", "--user").code == 4
    both = run_in_process("config", "init", "--user", "other.toml")
    assert (both.code, "give either FILE or --user" in both.err) == (2, True)
    file.write_text("[tileferry.c11]\nsource = 'mine'\nmax_5xx_retries = 2\n")
    (tmp_path / "tileferry.toml").write_text("[tileferry.c11]\nsource = 'other'\n")
    lines = run_in_process("config", "show", "--origin").out.splitlines()
    assert 'source = "other"  # tileferry.toml' in lines
    assert f"max_5xx_retries = 2  # {file}" in lines
    body = run_in_process("config", "show", "--json").json
    assert (body["file"], body["user_file"]) == ("tileferry.toml", str(file))


def test_show_prints_value_and_origin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tileferry.toml").write_text("[tileferry.c11]\nsource = 'other'\n")
    monkeypatch.setenv("TILEFERRY_C11_MAX_5XX_RETRIES", "3")
    monkeypatch.setenv("TILEFERRY_C11_SERVICE_API_KEY", KEY)
    lines = run_in_process("config", "show", "--origin").out.splitlines()
    assert 'source = "other"  # tileferry.toml' in lines
    assert "max_5xx_retries = 3  # TILEFERRY_C11_MAX_5XX_RETRIES" in lines
    assert "max_tile_bytes = 16777216  # default" in lines
    assert 'service_api_key = "***"  # TILEFERRY_C11_SERVICE_API_KEY' in lines
    assert "max_tile_bytes = 16777216" in run_in_process("config", "show").out.splitlines()


def test_show_json_is_one_object_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFERRY_C11_SERVICE_API_KEY", KEY)
    ran = run_in_process("config", "show", "--json")
    assert KEY not in ran.out
    assert (ran.json["schema"], ran.json["file"]) == ("tileferry.config.show.v1", None)
    (key,) = [one for one in ran.json["settings"] if one["path"] == "c11.service_api_key"]
    assert key == {
        "path": "c11.service_api_key",
        "value": "***",
        "origin": "TILEFERRY_C11_SERVICE_API_KEY",
        "variable": "TILEFERRY_C11_SERVICE_API_KEY",
    }
