"""How long sending may take."""

import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import SendingLimits


def test_the_time_for_sending_grows_with_what_is_sent() -> None:
    limits = SendingLimits(rate_bytes_s_min=1_000.0, grace_s=30.0)
    assert limits.deadline_s(0) == 30
    assert limits.deadline_s(16_000_000) == 16_030
    assert SendingLimits().deadline_s(16 * 1024 * 1024) < 5 * 3600


@pytest.mark.parametrize("field", ["rate_bytes_s_min", "grace_s"])
def test_nothing_may_be_sent_for_ever(field: str) -> None:
    with pytest.raises(InvalidValueError, match=field):
        SendingLimits(**{field: 0.0})
