"""Configuration: file, then environment; secrets stay hidden."""

import re
from pathlib import Path

import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.config import CONFIG_FILE, Config, load_config
from tileferry.entrypoints.config.origins import find_origin
from tileferry.entrypoints.config.setting_names import (
    find_unknown_variables,
    is_plain_setting,
    list_setting_paths,
)
from tileferry.entrypoints.config.settings import list_settings

CANARY = "canary-password"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("DATABASE_URL", "DATA_DIR", "C11_CACHE_ROOT", "C6_BUDGET_BYTES"):
        monkeypatch.delenv(f"TILEFERRY_{name}", raising=False)


def test_defaults() -> None:
    config = load_config()
    assert config.database_url is None
    assert config.c6.budget_bytes is None
    assert config.c6.free_space_reserve_bytes is None
    assert config.c11.cache_root.name == "cache"
    assert config.data_dir.name == "postgres"


def test_environment_overrides_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text("[tileferry]\ndata_dir = '/a'\n[tileferry.c6]\nbudget_bytes = 5\n")
    assert load_config(file).c6.budget_bytes == 5
    monkeypatch.setenv("TILEFERRY_C6_BUDGET_BYTES", "6")
    config = load_config(file)
    assert (config.c6.budget_bytes, config.data_dir) == (6, Path("/a"))


def write_user_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    file = tmp_path / "user" / "tileferry" / CONFIG_FILE
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return file


def test_project_file_overrides_user_file_and_environment_overrides_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    user = write_user_file(
        monkeypatch,
        tmp_path,
        '[tileferry.c11]\nsource = "user"\nhttp_timeout_s = 7\n[tileferry.worker]\nlease_s = 77\n',
    )
    assert (load_config().source, load_config().c11.http_timeout_s) == ("user", 7)
    assert find_origin("c11.source") == str(user)
    (tmp_path / CONFIG_FILE).write_text('[tileferry.c11]\nsource = "project"\n')
    other = tmp_path / "other.toml"
    other.write_text('[tileferry.c11]\nsource = "other"\n')
    for file, source in ((None, "project"), (other, "other")):
        config = load_config(file)
        assert (config.source, config.c11.http_timeout_s, config.worker.lease_s) == (source, 7, 77)
        assert find_origin("c11.source", file) == str(file or CONFIG_FILE)
        assert find_origin("worker.lease_s", file) == str(user)
    monkeypatch.setenv("TILEFERRY_C11_SOURCE", "env")
    assert load_config(other).source == "env"
    assert find_origin("c11.source", other) == "TILEFERRY_C11_SOURCE"
    assert find_origin("c6.budget_bytes") == "default"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tileferry.c6]\nbudget_bytes = -1\n", "c6.budget_bytes: .* correct it in {file}$"),
        ("[tileferry.c6]\nbudgt = 1\n", "is not a setting .* correct it in {file}$"),
        ("[c6]\nbudget_bytes = 1\n", "unknown in {file}"),
        ("nonsense", "{file}: cannot be read"),
        ('[tileferry.c11]\nservice_api_key = "k"\n', "is in {file}, which other users can read"),
    ],
)
def test_invalid_user_file_is_rejected_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / CONFIG_FILE).write_text("[tileferry.worker]\nlease_s = 77\n")
    user = write_user_file(monkeypatch, tmp_path, text)
    user.chmod(0o644)
    with pytest.raises(InvalidValueError, match=said.format(file=re.escape(str(user)))):
        load_config()


def test_misspelt_variable_is_rejected_with_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFERRY_C11_SERVICE_API_KY", "canary")
    with pytest.raises(InvalidValueError) as refusal:
        load_config()
    assert str(refusal.value) == (
        "TILEFERRY_C11_SERVICE_API_KY: is not a setting; did you mean"
        " TILEFERRY_C11_SERVICE_API_KEY?"
    )
    monkeypatch.delenv("TILEFERRY_C11_SERVICE_API_KY")
    monkeypatch.setenv("TILEFERRY_PROVIDER_API_KEY", "canary")
    load_config()
    monkeypatch.setenv("TILEFERRY_SETTINGS", "other.toml")  # read by the library, but not by us
    with pytest.raises(InvalidValueError, match="TILEFERRY_SETTINGS: is not a setting"):
        load_config()


def test_setting_paths_are_those_of_all_settings() -> None:
    assert set(list_setting_paths(Config)) == {setting.path for setting in list_settings(Config())}


def test_missing_config_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"none\.toml: does not exist"):
        load_config(tmp_path / "none.toml")


def test_tilde_in_paths_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "me"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TILEFERRY_DATA_DIR", "~/postgres")
    file = tmp_path / "tileferry.toml"
    file.write_text("[tileferry.c11]\ncache_root = '~/cache'\nca_file = '~'\n")
    config = load_config(file)
    assert (config.c11.cache_root, config.c11.ca_file) == (home / "cache", home)
    assert config.data_dir == home / "postgres"
    file.write_text("[tileferry.c11]\ncache_root = 'a~/b'\n")
    assert load_config(file).c11.cache_root == tmp_path / "a~" / "b"


def test_home_of_unknown_user_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "tileferry.toml"
    file.write_text("[tileferry.log]\nfile = '~no-such-user/log'\n")
    with pytest.raises(InvalidValueError, match=r"log\.file: invalid value .*~no-such-user/log"):
        load_config(file)


def test_database_url_is_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFERRY_DATABASE_URL", f"postgresql://me:{CANARY}@host/db")
    config = load_config()
    assert config.database_url is not None
    assert config.database_url.get_secret_value().endswith("@host/db")
    assert CANARY not in f"{config} {config!r} {config.database_url}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "[tileferry.c6]\nbudget_bytes = 'lots'\n",
            "c6.budget_bytes: invalid value (got 'lots')",
        ),
        ("[tileferry.c6]\nbudget_bytes = -1\n", "c6.budget_bytes: must be a whole number"),
        (
            "[tileferry.worker]\nlease_s = 0\n",
            "worker.lease_s: must be a finite number from 0.1 to 86400 (got 0.0)",
        ),
        ("[tileferry.partitions]\nmax_age_days = -1\n", "partitions.max_age_days: must be a"),
        (
            "[tileferry.partitions]\nmax_age_days = 5000\n",
            "partitions.max_age_days: must be a finite number from 0.001 to 3650 (got 5000.0)",
        ),
        (
            "[tileferry.partitions]\nmax_age_days = 1e10\n",
            "partitions.max_age_days: must be a finite number from 0.001 to 3650 (got 1000000",
        ),
        (
            "[tileferry.c11]\nmax_tile_bytes = 100000000\n",
            "c11.max_tile_bytes: must be a whole number from 1 to 67108864 (got 100000000)",
        ),
        (
            "[tileferry.c11]\nmin_resolution_m_per_px = 0\n",
            "c11.min_resolution_m_per_px: must be a finite number above 0 (got 0.0)",
        ),
        (
            "[tileferry.c11]\nmax_resolution_m_per_px = -1\n",
            "c11.max_resolution_m_per_px: must be a finite number above 0 (got -1.0)",
        ),
        (
            "[tileferry.c11]\nmax_resolution_m_per_px = 0.3\n",
            "c11.max_resolution_m_per_px: is below min_resolution_m_per_px, 0.5 (got 0.3)",
        ),
        (
            "[tileferry.worker]\nmax_backoff_s = 60\ninitial_backoff_s = 600\n",
            "worker.max_backoff_s: is below initial_backoff_s, 600 (got 60.0)",
        ),
        (
            "[tileferry.areas]\nx = '1,2'\n",
            "areas.x: invalid bounding box: is not of the form W,S,E,N (got",
        ),
        (
            "[tileferry.c6]\nbudget_byte = 1\n",
            "c6.budget_byte: is not a setting (got 'budget_byte'); did you mean budget_bytes? c6",
        ),
        ("[tileferry.c6]\nzzz = 1\n", "c6.zzz: is not a setting (got 'zzz'); c6 has budget_bytes"),
        ("[tileferry.audti]\nsinks = 1\n", "is not a setting (got 'audti'); did you mean audit?"),
        ("[tileferry]\ndata_dri = 1\n", "did you mean data_dir? the configuration has database"),
        ("[tileferry]\ndata_dir.x = 1\n", "data_dir: invalid value"),
        ("[tileferry]\nc6 = 1\n", "c6: must be a table of settings"),
        ("tileferry = 1\n", "tileferry: must be a table of settings"),
        ("[tileferry.c6]\nbudget_bytes = 1.5\n", "c6.budget_bytes: invalid value (got 1.5)"),
        ("[tileferry.retry.KV_GOT]\nmax_delay = 1\n", "did you mean KV_GET? retry has NATS_"),
        ("[tileferry.retry.KV_GET]\nmax_dely = 1\n", "did you mean max_delay? retry.KV_GET has"),
        ("[c11]\nsource = 'x'\n", "toml; write [tileferry.c11]"),
        ("[c1]\nsource = 'x'\n", "toml; write [tileferry.c11]"),
        ("[areas]\nx = '1,2,3,4'\n", "toml; write [tileferry.areas]"),
        ("[tilefery.c11]\nsource = 'x'\n", "toml; write [tileferry.c11]"),
        ("[tilefery]\ndata_dir = 'x'\n", "[tilefery]: unknown in "),
        ("[tilefery]\ndata_dir = 'x'\n", "toml; write [tileferry]"),
        ("[zzz]\n", "toml; the tables are [tileferry.c11], [tileferry.xyz], "),
        ("data_dir = '/a'\n[tileferry.c11]\n", "data_dir: unknown in "),
        ("data_dir = '/a'\n[tileferry.c11]\n", "move it to [tileferry] or to one of its tables"),
    ],
)
def test_invalid_setting_is_rejected_by_name(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "tileferry.toml"
    file.write_text(text)
    with pytest.raises(InvalidValueError) as refusal:
        load_config(file)
    assert problem in str(refusal.value)


@pytest.mark.parametrize("content", [b"[tileferry", b"\xff"])
def test_unreadable_config_file_is_rejected_by_name(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    with pytest.raises(InvalidValueError, match="cannot be read: ") as refusal:
        load_config(file)
    assert refusal.value.field == str(file)
    assert CONFIG_FILE not in str(refusal.value)


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("TILEFERRY_C6_BUDGET_BYTES", "much", "c6.budget_bytes: invalid value"),
        ("TILEFERRY_C11_SOURCE", "A B", "c11.source: is not"),
        ("TILEFERRY_RETRY_KV_GET_MAX_ATTEMPTS", "0", "retry.KV_GET.max_attempts: must be"),
    ],
)
def test_invalid_value_error_names_variable_or_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, value: str, named: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidValueError) as refusal:
        load_config()
    assert named in str(refusal.value)
    assert str(refusal.value).endswith(f"correct it in {variable}")
    monkeypatch.delenv(variable)
    file = tmp_path / "other.toml"
    file.write_text("[tileferry.c6]\nbudget_bytes = -1\n")
    with pytest.raises(InvalidValueError, match=rf"correct it in {file}$"):
        load_config(file)


def test_unknown_variables_are_reported_with_suggestion() -> None:
    paths = ["c11.cache_root", "c11.service_api_key", "retry.KV_GET.max_attempts"]
    environment = [
        "HOME",
        "TILEFERRY_C11_CACHE_ROOT",
        "TILEFERRY_C11_CACHE_ROOTT",
        "TILEFERRY_c11_cache_root",
        "TILEFERRY_RETRY_KV_GETT_MAX_ATTEMPT",
        "TILEFERRY_PROVIDER_API_KEY",
        "TILEFERRY_ZZZ",
    ]
    assert find_unknown_variables(environment, paths) == {
        "TILEFERRY_C11_CACHE_ROOTT": "TILEFERRY_C11_CACHE_ROOT",
        "TILEFERRY_c11_cache_root": "TILEFERRY_C11_CACHE_ROOT",
        "TILEFERRY_RETRY_KV_GETT_MAX_ATTEMPT": "TILEFERRY_RETRY_KV_GET_MAX_ATTEMPTS",
        "TILEFERRY_ZZZ": None,
    }


@pytest.mark.parametrize("source", ["a/b", "", "Sat", ".."])
def test_invalid_source_is_rejected(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEFERRY_C11_SOURCE", source)
    with pytest.raises(InvalidValueError, match=r"c11\.source"):
        load_config()


@pytest.mark.parametrize(
    ("path", "is_plain"),
    [
        ("worker.lease_s", True),
        ("retry.KV_GET.max_delay", True),
        ("areas.depot", True),
        ("database_url", False),
        ("c11.service_api_key", False),
        ("c11.service_api_key_file", True),
        ("c11", False),
        ("nobody", False),
    ],
)
def test_only_non_secret_settings_are_plain(path: str, *, is_plain: bool) -> None:
    assert is_plain_setting(path, Config) is is_plain


@pytest.mark.parametrize("value", [f"['{CANARY}']", f"{{ x = '{CANARY}' }}", "5", "true"])
def test_invalid_secret_is_rejected_by_name_and_not_shown(tmp_path: Path, value: str) -> None:
    file = tmp_path / "tileferry.toml"
    file.write_text(f"[tileferry]\ndatabase_url = {value}\n")
    with pytest.raises(InvalidValueError) as refusal:
        load_config(file)
    assert str(refusal.value) == (f"database_url: invalid value (got '***'); correct it in {file}")


def test_key_in_world_readable_config_is_rejected_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "tileferry.toml"
    file.write_text("[tileferry.c11]\nservice_api_key = 'canary'\n")
    file.chmod(0o640)
    with pytest.raises(InvalidValueError, match=r"other users can read \(mode 640\)") as refused:
        load_config(file)
    assert refused.value.field == "c11.service_api_key"
    assert "canary" not in str(refused.value)
    file.chmod(0o600)
    key = load_config(file).c11.service_api_key
    assert key is not None
    assert key.get_secret_value() == "canary"


def test_non_text_config_file_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "tileferry.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidValueError, match="cannot be read"):
        load_config(file)
