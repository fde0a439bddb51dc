"""Objects of JSON: each field is what it must be, or is refused by its place."""

from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import JsonObject
from tileferry.domain.tiles import BBox

DATA = JsonObject.from_value(
    {"version": 1, "a": "x", "n": 7, "yes": True, "day": "2024-02-29", "many": [1, "2"]}, "plan"
)


class Letter(StrEnum):
    """One of two."""

    A = "a"
    B = "b"


def expect_rejection(take: Any) -> InvalidValueError:
    with pytest.raises(InvalidValueError) as caught:
        take()
    return caught.value


def test_fields_are_returned_with_their_types() -> None:
    assert (DATA.get("a", str), DATA.get("n", int), DATA.get("yes", bool)) == ("x", 7, True)
    assert DATA.get_date("day") == date(2024, 2, 29)
    assert DATA.get_list("many") == [1, "2"]
    DATA.check_version(1, remedy="")
    DATA.check_names(("version", "a", "n", "yes", "day", "many"))


@pytest.mark.parametrize(
    ("name", "kind", "problem"),
    [
        ("n", str, "must be text"),
        ("yes", int, "must be a whole number"),
        ("a", int, "must be a whole number"),
        ("n", bool, "must be true or false"),
        ("nothing", str, "must be text"),
    ],
)
def test_field_of_wrong_type_is_rejected_by_path(name: str, kind: type[Any], problem: str) -> None:
    error = expect_rejection(lambda: DATA.get(name, kind))
    assert (error.field, error.problem) == (f"plan.{name}", problem)
    assert error.value == DATA.fields.get(name)


def test_numbers_times_and_enum_members_are_read() -> None:
    data = JsonObject("plan", {"n": 7, "f": 0.5, "at": "2024-02-29T01:00:00+01:00", "s": "a"})
    assert (data.get_number("n"), data.get_number("f")) == (7.0, 0.5)
    assert data.get_datetime("at") == datetime(2024, 2, 29, tzinfo=UTC)
    assert data.get_enum("s", Letter) is Letter.A


@pytest.mark.parametrize("value", [True, "7", None, []])
def test_non_number_is_rejected(value: JsonValue) -> None:
    error = expect_rejection(lambda: JsonObject("plan", {"n": value}).get_number("n"))
    assert (error.field, error.problem) == ("plan.n", "must be a number")


@pytest.mark.parametrize("value", ["c", "A", None, 7, ["a"]])
def test_unknown_enum_member_is_rejected(value: JsonValue) -> None:
    error = expect_rejection(lambda: JsonObject("plan", {"s": value}).get_enum("s", Letter))
    assert (error.field, error.problem) == ("plan.s", "must be one of a, b")


@pytest.mark.parametrize("value", ["2024-02-29T00:00:00", "today", None])
def test_naive_or_invalid_time_is_rejected(value: JsonValue) -> None:
    error = expect_rejection(lambda: JsonObject("plan", {"at": value}).get_datetime("at"))
    assert error.field == "plan.at"


def test_optional_fields_may_be_missing() -> None:
    DATA.check_names(("version", "a", "n"), optional=("yes", "day", "many", "more"))


@pytest.mark.parametrize("value", ["x", None, 7, {"a": 1}])
def test_non_list_is_rejected(value: JsonValue) -> None:
    error = expect_rejection(lambda: JsonObject("plan", {"many": value}).get_list("many"))
    assert (error.field, error.problem) == ("plan.many", "must be a list")


@pytest.mark.parametrize("value", [None, [], "x", 7])
def test_non_object_is_rejected(value: JsonValue) -> None:
    error = expect_rejection(lambda: JsonObject.from_value(value, "plan"))
    assert (error.field, error.problem) == ("plan", "must be an object")
    assert error.value == type(value).__name__


@pytest.mark.parametrize(
    "text", ["", "2024-02-30", "20240229", "2024-W09-4", " 2024-02-29", "2024-02-29T00:00"]
)
def test_malformed_date_is_rejected(text: str) -> None:
    error = expect_rejection(lambda: JsonObject("plan", {"day": text}).get_date("day"))
    assert (error.field, error.value) == ("plan.day", text)
    assert error.problem == "must be a date, such as 2024-01-31"


@given(st.dates())
def test_every_date_round_trips(day: date) -> None:
    assert JsonObject("plan", {"day": day.isoformat()}).get_date("day") == day


@given(st.text(max_size=12))
def test_only_iso_text_is_accepted_as_date(text: str) -> None:
    data = JsonObject("plan", {"day": text})
    try:
        day = data.get_date("day")
    except InvalidValueError:
        return
    assert day.isoformat() == text


def test_missing_and_unknown_fields_are_named() -> None:
    error = expect_rejection(lambda: DATA.check_names((*DATA.fields, "more")))
    assert (error.field, error.problem) == ("plan.more", "is missing")
    error = expect_rejection(lambda: DATA.check_names(("version", "a", "n", "yes", "day")))
    assert (error.field, error.problem, error.value) == ("plan.many", "is not known", [1, "2"])


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"version": 2}, "is not known: this release reads version 1"),
        ({"version": True}, "must be a whole number"),
        ({}, "must be a whole number"),
    ],
)
def test_unknown_version_is_rejected(fields: dict[str, JsonValue], problem: str) -> None:
    error = expect_rejection(lambda: JsonObject("plan", fields).check_version(1, remedy="upgrade"))
    assert (error.field, error.problem) == ("plan.version", problem)


def test_nested_value_errors_are_prefixed_with_path() -> None:
    with pytest.raises(InvalidValueError) as caught, DATA.locate_errors("a"):
        BBox.parse("1,2,3,91")
    assert caught.value.field == "plan.a.north"
    with pytest.raises(InvalidValueError) as caught, DATA.locate_errors("a"):
        BBox.parse("1,2,3")
    assert caught.value.field == "plan.a"
    assert caught.value.remedy == "give four numbers in degrees, such as 36.1,49.9,36.4,50.1"
    with pytest.raises(InvalidValueError) as caught, DATA.locate_errors():
        DATA.get("a", int)
    assert caught.value.field == "plan.a"
