"""How long sending may take."""

import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import SendingLimits


def test_send_deadline_grows_with_body_size() -> None:
    limits = SendingLimits(rate_bytes_s_min=1_000.0, grace_s=30.0)
    assert limits.compute_deadline_s(0) == 30
    assert limits.compute_deadline_s(16_000_000) == 16_030
    assert SendingLimits().compute_deadline_s(16 * 1024 * 1024) < 5 * 3600


@pytest.mark.parametrize("field", ["rate_bytes_s_min", "grace_s"])
def test_zero_sending_limit_is_rejected(field: str) -> None:
    with pytest.raises(InvalidValueError, match=field):
        SendingLimits(**{field: 0.0})
