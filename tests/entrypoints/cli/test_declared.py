"""What the help offers for an option is what the domain knows: no more, no less."""

from enum import StrEnum
from typing import Any, get_args

import pytest

from tileferry.domain.partitions import LARGE_RANGE, PartitionStatus
from tileferry.domain.runs import RunKind, RunStatus
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


@pytest.mark.parametrize(
    ("option", "offered", "known"),
    [
        (declared.KindOption, declared.KnownRunKind, RunKind),
        (declared.RunStatusOption, declared.KnownRunStatus, RunStatus),
        (declared.PartitionStatusOption, declared.KnownPartitionStatus, PartitionStatus),
    ],
)
def test_an_option_that_may_be_repeated_takes_and_names_just_those_values(
    option: Any, offered: type[StrEnum], known: type[StrEnum]
) -> None:
    values = [member.value for member in known]
    assert [member.value for member in offered] == values
    named = get_args(option)[1].help.split(": ")[1].split(".")[0]
    assert named == f"{', '.join(values[:-1])} or {values[-1]}"


def test_the_help_says_from_which_count_on_it_must_be_confirmed() -> None:
    assert f"from {LARGE_RANGE} on" in get_args(declared.ConfirmOption)[1].help
