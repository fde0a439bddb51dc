"""Categories, as people name them."""

import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import RetryCategory


@pytest.mark.parametrize("category", list(RetryCategory))
def test_a_category_is_known_by_its_name_and_its_code_in_any_case(category: RetryCategory) -> None:
    for text in (category.name, category.value, f" {category.name.lower()} "):
        assert RetryCategory.named(text) is category


@pytest.mark.parametrize("text", ["", "KV", "RETRY_", "KV_GET;"])
def test_what_is_none_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(InvalidValueError, match="is not a category of retries") as refusal:
        RetryCategory.named(text)
    assert "API_REQUEST" in refusal.value.remedy
