"""The page for embedders: its examples run, and its table names every category."""

import re
from pathlib import Path

import pytest

from tileferry.domain.retry import RetryCategory

PAGE = (Path(__file__).parents[2] / "_docs/embedding.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs_by_itself(number: int) -> None:
    exec(compile(EXAMPLES[number], f"embedding.md, example {number}", "exec"), {})  # noqa: S102


def test_every_category_is_listed_with_its_use() -> None:
    table = PAGE.split("<!-- categories -->")[1].split("<!-- end -->")[0]
    rows = [row.strip("| ").split(" | ") for row in table.strip().splitlines()[2:]]
    assert [name for name, _use in rows] == [category.name for category in RetryCategory]
