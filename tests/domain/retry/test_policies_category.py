"""Categories, as people name them."""

import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.retry import RetryCategory


@pytest.mark.parametrize("category", list(RetryCategory))
def test_category_is_parsed_from_name_or_code_in_any_case(category: RetryCategory) -> None:
    for text in (category.name, category.value, f" {category.name.lower()} "):
        assert RetryCategory.parse(text) is category


@pytest.mark.parametrize("text", ["", "KV", "RETRY_", "KV_GET;"])
def test_unknown_category_is_rejected_with_known_names(text: str) -> None:
    with pytest.raises(InvalidValueError, match="is not a category of retries") as refusal:
        RetryCategory.parse(text)
    assert "API_REQUEST" in refusal.value.remedy
