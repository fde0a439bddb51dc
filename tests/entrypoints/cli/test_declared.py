"""What the help offers for an option is what the domain knows: no more, no less."""

from enum import StrEnum
from typing import Any, get_args

import pytest

from tileferry.domain.tiles import SectorClass
from tileferry.entrypoints.cli.options import declared


@pytest.mark.parametrize(
    ("offered", "known"),
    [
        (declared.Sector, SectorClass),
    ],
)
def test_an_option_offers_just_the_values_that_the_domain_knows(
    offered: Any, known: type[StrEnum]
) -> None:
    assert list(get_args(offered)) == [member.value for member in known]
