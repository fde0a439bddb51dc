"""The examples for embedders run, the README's too; their page names every category."""

import re
from pathlib import Path

import pytest
from support.provider import API_KEY, RunningProvider

from tileferry.domain.retry import RetryCategory
from tileferry.entrypoints.provider.imagery import draw_tile

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "_docs/embedding.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README + PAGE, re.DOTALL)


def test_examples_are_found() -> None:
    assert len(EXAMPLES) >= 6


@pytest.fixture
def _installation(
    tmp_path: Path,
    database_url: str,
    reference_provider: RunningProvider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A provider, a database, and a card with a picture."""
    monkeypatch.chdir(tmp_path)
    settings = {
        "DATABASE_URL": database_url,
        "C11_SATELLITE_PROVIDER_URL": reference_provider.url,
        "C11_SERVICE_API_KEY": API_KEY,
        "C11_CACHE_ROOT": str(tmp_path / "cache"),
        "PARTITIONS_RAW_ROOT": str(tmp_path / "raw"),
    }
    picture = tmp_path / "card" / "16" / "39000" / "22000.jpg"
    picture.parent.mkdir(parents=True)
    picture.write_bytes(draw_tile(16, 39_000, 22_000))
    for name, value in settings.items():
        monkeypatch.setenv(f"TILEFERRY_{name}", value)


@pytest.mark.usefixtures("_installation")
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs_standalone(number: int) -> None:
    exec(compile(EXAMPLES[number], f"example {number}", "exec"), {})  # noqa: S102


def test_every_retry_category_is_documented() -> None:
    table = PAGE.split("<!-- categories -->")[1].split("<!-- end -->")[0]
    rows = [row.strip("| ").split(" | ") for row in table.strip().splitlines()[2:]]
    assert [name for name, _use in rows] == [category.name for category in RetryCategory]
