"""What the help offers for an option is what the domain knows: no more, no less."""

from enum import StrEnum
from typing import Any, get_args

import pytest

from tileferry.domain.partitions import LARGE_RANGE, PartitionStatus
from tileferry.domain.runs import RunKind, RunStatus
from tileferry.domain.tiles import SectorClass
from tileferry.entrypoints.cli import option_types


@pytest.mark.parametrize(
    ("offered", "known"),
    [
        (option_types.Sector, SectorClass),
    ],
)
def test_option_values_match_domain(offered: Any, known: type[StrEnum]) -> None:
    assert list(get_args(offered)) == [member.value for member in known]


@pytest.mark.parametrize(
    ("option", "offered", "known"),
    [
        (option_types.KindOption, option_types.KnownRunKind, RunKind),
        (option_types.RunStatusOption, option_types.KnownRunStatus, RunStatus),
        (option_types.PartitionStatusOption, option_types.KnownPartitionStatus, PartitionStatus),
    ],
)
def test_repeatable_option_values_and_help_match_domain(
    option: Any, offered: type[StrEnum], known: type[StrEnum]
) -> None:
    values = [member.value for member in known]
    assert [member.value for member in offered] == values
    named = get_args(option)[1].help.split(": ")[1].split(".")[0]
    assert named == f"{', '.join(values[:-1])} or {values[-1]}"


def test_confirm_count_help_states_threshold() -> None:
    assert f"for {LARGE_RANGE} or more" in get_args(option_types.ConfirmOption)[1].help
