"""The chain finds every change."""

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.audit import (
    GENESIS,
    ChainEntry,
    ChainHead,
    ChainProblem,
    next_entry,
    verify_chain,
)
from tileferry.domain.errors import InvalidValueError

bodies = st.lists(st.binary(max_size=20), min_size=1, max_size=12)


def chain_of(contents: list[bytes]) -> list[ChainEntry]:
    entries: list[ChainEntry] = []
    head = GENESIS
    for body in contents:
        entries.append(next_entry(head, body))
        head = entries[-1].head
    return entries


def test_an_empty_log_is_intact() -> None:
    report = verify_chain([])
    assert report.intact
    assert report.checked == 0
    assert report.head == GENESIS == ChainHead(sequence=0, hash="0" * 64)


def test_entries_are_numbered_from_one_and_linked() -> None:
    first, second = chain_of([b"a", b"b"])
    assert (first.sequence, first.previous_hash, first.body) == (1, "0" * 64, b"a")
    assert (second.sequence, second.previous_hash, second.body) == (2, first.hash, b"b")
    assert second.head == ChainHead(sequence=2, hash=second.hash)


def test_hashes_stay_as_first_released() -> None:
    assert (
        chain_of([b"a"])[0].hash
        == "d04591c362a071a716f33be6b08d94602be19d23b297d18e16f40c72bb3a7779"
    )


def test_a_body_is_bytes() -> None:
    event: Any = {"event_type": "x"}
    with pytest.raises(InvalidValueError, match="body: must be an event's canonical bytes"):
        next_entry(GENESIS, event)


def test_a_head_before_the_start_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"ChainHead\.sequence"):
        ChainHead(sequence=-1, hash="")


@given(bodies)
def test_an_untouched_log_is_intact(contents: list[bytes]) -> None:
    entries = chain_of(contents)
    report = verify_chain(iter(entries), expected_head=entries[-1].head)
    assert report.intact
    assert report.problem is None
    assert report.checked == len(entries)
    assert report.head == entries[-1].head


@given(bodies, st.data())
def test_invariant_21_one_flipped_bit_is_found_where_it_is(
    contents: list[bytes], data: st.DataObject
) -> None:
    entries = chain_of(contents)
    index = data.draw(st.integers(0, len(entries) - 1))
    victim = entries[index]
    stored = victim.body + bytes.fromhex(victim.hash) + bytes.fromhex(victim.previous_hash)
    bit = data.draw(st.integers(0, len(stored) * 8 - 1))
    flipped = bytearray(stored)
    flipped[bit // 8] ^= 1 << (bit % 8)
    size = len(victim.body)
    entries[index] = evolve(
        victim,
        body=bytes(flipped[:size]),
        hash=flipped[size : size + 32].hex(),
        previous_hash=flipped[size + 32 :].hex(),
    )
    report = verify_chain(entries)
    assert not report.intact
    assert report.checked == index
    expected = ChainProblem.NOT_LINKED if bit // 8 >= size + 32 else ChainProblem.EDITED
    assert report.problem is expected


@given(bodies.filter(lambda contents: len(contents) > 1), st.data())
def test_invariant_21_a_deleted_entry_is_found(contents: list[bytes], data: st.DataObject) -> None:
    entries = chain_of(contents)
    index = data.draw(st.integers(0, len(entries) - 2))
    report = verify_chain(entries[:index] + entries[index + 1 :])
    assert report.problem is ChainProblem.GAP
    assert report.checked == index


@given(bodies)
def test_entries_cut_off_at_the_end_are_found_by_the_noted_head(contents: list[bytes]) -> None:
    entries = chain_of(contents)
    noted = entries[-1].head
    report = verify_chain(entries[:-1], expected_head=noted)
    assert report.problem is ChainProblem.CUT_OFF
    assert report.checked == len(entries) - 1
    assert verify_chain(entries[:-1]).intact


@given(bodies, st.data())
def test_a_head_noted_earlier_is_found_on_the_way(
    contents: list[bytes], data: st.DataObject
) -> None:
    entries = chain_of(contents)
    index = data.draw(st.integers(-1, len(entries) - 1))
    noted = entries[index].head if index >= 0 else GENESIS
    report = verify_chain(entries, expected_head=noted)
    assert report.intact
    assert report.checked == len(entries)


def test_a_rewritten_tail_is_found_by_the_noted_head() -> None:
    noted = chain_of([b"a", b"b"])[-1].head
    assert verify_chain(chain_of([b"a", b"x"]), expected_head=noted).problem is ChainProblem.CUT_OFF


def test_invariant_21_the_head_that_a_log_claims_is_its_last_entry() -> None:
    entries = chain_of([b"a", b"b", b"c"])
    report = verify_chain(entries)
    assert report.held_against(entries[-1].head) == report
    forged = evolve(entries[-1].head, hash="0" * 64)
    for moved in (entries[1].head, forged, GENESIS, ChainHead(sequence=0, hash="f" * 64)):
        assert report.held_against(moved).problem is ChainProblem.HEAD_MOVED
    missing = next_entry(entries[-1].head, b"d").head
    assert report.held_against(missing).problem is ChainProblem.CUT_OFF
    nothing = verify_chain([])
    assert nothing.held_against(GENESIS).intact
    odd = nothing.held_against(ChainHead(sequence=0, hash="f" * 64))
    assert odd.problem is ChainProblem.HEAD_MOVED


def test_what_is_broken_before_its_end_stays_as_it_was_found() -> None:
    entries = chain_of([b"a", b"b", b"c"])
    report = verify_chain([entries[0], entries[2]])
    assert report.held_against(entries[-1].head) == report


def test_an_entry_renumbered_to_hide_a_deletion_is_found() -> None:
    first, _, third = chain_of([b"a", b"b", b"c"])
    moved = evolve(third, sequence=2)
    assert verify_chain([first, moved]).problem is ChainProblem.NOT_LINKED
    relinked = evolve(moved, previous_hash=first.hash)
    assert verify_chain([first, relinked]).problem is ChainProblem.EDITED


def test_verification_can_go_on_from_where_it_stopped() -> None:
    entries = chain_of([b"a", b"b", b"c"])
    report = verify_chain(entries[1:], start=entries[0].head)
    assert report.intact
    assert report.checked == 2
    assert verify_chain(entries[1:]).problem is ChainProblem.GAP


@pytest.mark.parametrize("problem", ChainProblem)
def test_every_problem_is_explained(problem: ChainProblem) -> None:
    assert len(problem.explanation) > 20
