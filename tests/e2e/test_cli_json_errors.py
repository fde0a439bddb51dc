"""``--json`` prints one object, also when a command fails."""

from pathlib import Path

import pytest
from support.download_operator import AREA, DOWNLOAD, FLIGHT
from support.operator import run_in_process
from support.scripted_provider import TILES, ScriptedProvider, create_answer

WRONG = ("--bbox", "1,2,3", "--zoom", "3")


@pytest.mark.usefixtures("operator", "provider")
@pytest.mark.parametrize(
    "command",
    [
        ("coverage", *WRONG),
        ("plan", *WRONG, *FLIGHT),
        ("download", *WRONG, *FLIGHT),
        ("cache", "verify", *WRONG),
    ],
    ids=["coverage", "plan", "download", "verify"],
)
def test_invalid_option_is_json_error(command: tuple[str, ...]) -> None:
    ran = run_in_process(*command, "--json")
    assert (ran.code, ran.json["schema"]) == (2, "tileferry.error.v1")
    assert ran.json["error"]["type"] == "InvalidValueError"
    assert ran.json["error"]["exit_code"] == 2
    assert ran.json["error"]["message"] in ran.err
    assert run_in_process(*command).out == ""


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("command", [("coverage", *AREA), ("plan", *AREA, *FLIGHT), DOWNLOAD])
def test_provider_error_is_json_error(provider: ScriptedProvider, command: tuple[str, ...]) -> None:
    provider.always[TILES] = create_answer(401)
    ran = run_in_process(*command, "--json")
    assert (ran.code, ran.json["error"]["type"]) == (6, "SatelliteProviderError")


@pytest.mark.usefixtures("operator", "provider")
@pytest.mark.parametrize(
    "command", [DOWNLOAD, ("plan", *AREA, *FLIGHT), ("cache", "verify", *AREA)]
)
def test_cache_root_that_is_a_file_is_json_error(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEFERRY_C11_CACHE_ROOT", str(tmp_path / "file"))
    ran = run_in_process(*command, "--json")
    assert (ran.code, ran.json["error"]["type"]) == (7, "StorageError")
    assert "Traceback" not in ran.err
    assert "c11.cache_root" in ran.err
