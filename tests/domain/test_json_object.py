"""Objects of JSON: each field is what it must be, or is refused by its place."""

from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.canonical import JsonValue
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json_object import JsonObject
from tileferry.domain.tiles import BBox

DATA = JsonObject.of(
    {"version": 1, "a": "x", "n": 7, "yes": True, "day": "2024-02-29", "many": [1, "2"]}, "plan"
)


class Letter(StrEnum):
    """One of two."""

    A = "a"
    B = "b"


def refusal(take: Any) -> InvalidValueError:
    with pytest.raises(InvalidValueError) as caught:
        take()
    return caught.value


def test_fields_come_as_what_they_are() -> None:
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
def test_a_field_of_another_kind_is_refused_by_its_place(
    name: str, kind: type[Any], problem: str
) -> None:
    error = refusal(lambda: DATA.get(name, kind))
    assert (error.field, error.problem) == (f"plan.{name}", problem)
    assert error.value == DATA.fields.get(name)


def test_numbers_moments_and_members_are_read() -> None:
    data = JsonObject("plan", {"n": 7, "f": 0.5, "at": "2024-02-29T01:00:00+01:00", "s": "a"})
    assert (data.get_number("n"), data.get_number("f")) == (7.0, 0.5)
    assert data.get_moment("at") == datetime(2024, 2, 29, tzinfo=UTC)
    assert data.get_member("s", Letter) is Letter.A


@pytest.mark.parametrize("value", [True, "7", None, []])
def test_only_a_number_is_one(value: JsonValue) -> None:
    error = refusal(lambda: JsonObject("plan", {"n": value}).get_number("n"))
    assert (error.field, error.problem) == ("plan.n", "must be a number")


@pytest.mark.parametrize("value", ["c", "A", None, 7, ["a"]])
def test_a_member_is_one_of_a_few(value: JsonValue) -> None:
    error = refusal(lambda: JsonObject("plan", {"s": value}).get_member("s", Letter))
    assert (error.field, error.problem) == ("plan.s", "must be one of a, b")


@pytest.mark.parametrize("value", ["2024-02-29T00:00:00", "today", None])
def test_a_moment_has_its_zone(value: JsonValue) -> None:
    error = refusal(lambda: JsonObject("plan", {"at": value}).get_moment("at"))
    assert error.field == "plan.at"


def test_what_is_optional_may_be_missing() -> None:
    DATA.check_names(("version", "a", "n"), optional=("yes", "day", "many", "more"))


@pytest.mark.parametrize("value", ["x", None, 7, {"a": 1}])
def test_only_a_list_is_a_list(value: JsonValue) -> None:
    error = refusal(lambda: JsonObject("plan", {"many": value}).get_list("many"))
    assert (error.field, error.problem) == ("plan.many", "must be a list")


@pytest.mark.parametrize("value", [None, [], "x", 7])
def test_only_an_object_is_one(value: JsonValue) -> None:
    error = refusal(lambda: JsonObject.of(value, "plan"))
    assert (error.field, error.problem) == ("plan", "must be an object")
    assert error.value == type(value).__name__


@pytest.mark.parametrize(
    "text", ["", "2024-02-30", "20240229", "2024-W09-4", " 2024-02-29", "2024-02-29T00:00"]
)
def test_a_date_has_one_form(text: str) -> None:
    error = refusal(lambda: JsonObject("plan", {"day": text}).get_date("day"))
    assert (error.field, error.value) == ("plan.day", text)
    assert error.problem == "must be a date, such as 2024-01-31"


@given(st.dates())
def test_every_date_is_read_back(day: date) -> None:
    assert JsonObject("plan", {"day": day.isoformat()}).get_date("day") == day


@given(st.text(max_size=12))
def test_no_text_is_a_date_but_those(text: str) -> None:
    data = JsonObject("plan", {"day": text})
    try:
        day = data.get_date("day")
    except InvalidValueError:
        return
    assert day.isoformat() == text


def test_a_missing_field_and_an_unknown_one_are_named() -> None:
    error = refusal(lambda: DATA.check_names((*DATA.fields, "more")))
    assert (error.field, error.problem) == ("plan.more", "is missing")
    error = refusal(lambda: DATA.check_names(("version", "a", "n", "yes", "day")))
    assert (error.field, error.problem, error.value) == ("plan.many", "is not known", [1, "2"])


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"version": 2}, "is not known: this release reads version 1"),
        ({"version": True}, "must be a whole number"),
        ({}, "must be a whole number"),
    ],
)
def test_another_version_is_refused(fields: dict[str, JsonValue], problem: str) -> None:
    error = refusal(lambda: JsonObject("plan", fields).check_version(1, remedy="upgrade"))
    assert (error.field, error.problem) == ("plan.version", problem)


def test_what_a_value_says_of_its_fields_is_said_of_where_it_stood() -> None:
    with pytest.raises(InvalidValueError) as caught, DATA.naming("a"):
        BBox.parse("1,2,3,91")
    assert caught.value.field == "plan.a.north"
    with pytest.raises(InvalidValueError) as caught, DATA.naming("a"):
        BBox.parse("1,2,3")
    assert caught.value.field == "plan.a"
    assert caught.value.remedy == "give four numbers in degrees, such as 36.1,49.9,36.4,50.1"
    with pytest.raises(InvalidValueError) as caught, DATA.naming():
        DATA.get("a", int)
    assert caught.value.field == "plan.a"
