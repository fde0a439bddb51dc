"""The demo's page: whoever wrote what stands in it, it is text, and nothing is fetched or run."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve
from support.html_page import read_page

from tileferry.entrypoints.demo.counting import Delivered, Downloaded, Notebook
from tileferry.entrypoints.demo.findings import Findings, Wait
from tileferry.entrypoints.demo.report.markup import element, words
from tileferry.entrypoints.demo.report.page import page
from tileferry.entrypoints.demo.report.plots import by_reason
from tileferry.entrypoints.demo.stage import Chapter, Played

BEGAN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOSTILE = "</title></style><script>alert(1)</script><img src=x onerror='alert(2)'> & \"so\" on"
BBOX = [36.20, 49.90, 36.42, 50.04]


def after(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def findings(said: str = "clouds: 93 %") -> Findings:
    """A small story in which ``said`` stands wherever others may have written."""
    drawn = {"verdict": said, "bbox": BBOX, "features": []}
    hole = {"kind": "hole", "zoom": 14, "x_min": 9839, "x_max": 9849, "y_min": 5553, "y_max": 5554}
    return Findings(
        chapters=[
            Chapter(
                said,
                BEGAN,
                [Played(said, BEGAN, after(4), killed=True), Played("worker", after(4), after(9))],
            ),
            Chapter("Why?", after(9), [Played("audit verify", after(9), after(12))]),
        ],
        ended_at=after(12),
        notes=Notebook(
            killed={**drawn, "features": [{"properties": hole}]}, ready={**drawn, "verdict": "GO"}
        ),
        download=Downloaded(
            tiles=frozenset({"14/9839/5553", "14/9840/5553"}),
            safe=frozenset({"14/9840/5553"}),
            requests=17,
            failed=3,
            in_the_air=2,
            twice=0,
            attempts={1: 120, 3: 1},
        ),
        upload=Delivered(
            accepted=frozenset({"16/39370/22230"}),
            giveups=[
                {
                    "tile_id": "flight-x/16/39371/22230",
                    "attempts": 5,
                    "last_rejection_reason": said,
                }
            ],
            attempts={1: 1, 5: 1},
        ),
        cache={"used_bytes": 2_800_692, "tiles": 169},
        waits=[Wait(at=after(second), delay_s=second / 2, reason=said) for second in (1, 2, 5)],
        partition={
            "partition": "satellite/acme/fields/2026-03-01",
            "status": "success",
            "verdicts": [{"outcome": "failed"}, {"outcome": "passed"}],
        },
        changes=[
            {
                "timestamp": "2026-03-01T12:00:05Z",
                "from_status": None,
                "to_status": said,
                "transition": said,
                "actor": said,
                "reason": said,
            }
        ],
        chain={"intact": True, "checked": 68, "head": said, "explanation": None},
    )


def test_what_others_wrote_is_text_and_nothing_else() -> None:
    tame, hostile = read_page(page(findings())), read_page(page(findings(HOSTILE)))
    assert hostile.tags == tame.tags
    assert [name for name, _ in hostile.attributes] == [name for name, _ in tame.attributes]
    assert not {"script", "img", "iframe", "link", "object"} & set(hostile.tags)
    assert not [name for name, _ in hostile.attributes if name.startswith("on")]
    assert hostile.texts.count(HOSTILE) >= 3  # as it was said: giveup, partition, head


def test_the_page_needs_nothing_and_forbids_the_rest() -> None:
    html = page(findings())
    assert "http://" not in html
    assert "https://" not in html
    assert "url(" not in html
    assert "@import" not in html
    contents = [value for name, value in read_page(html).attributes if name == "content"]
    assert any(value.startswith("default-src 'none'; style-src 'unsafe-") for value in contents)
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_every_picture_has_a_text_alternative() -> None:
    html = page(findings())
    parsed = read_page(html)
    pictures = parsed.tags.count("svg")
    named = [value for name, value in parsed.attributes if name == "aria-labelledby"]
    hidden = [value for name, value in parsed.attributes if name == "aria-hidden"]
    assert len(named) == 5  # two maps of the area, one of the flight, two plots
    assert pictures <= len(named) + len(hidden)
    ids = [value for name, value in parsed.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {part for value in named for part in value.split()} <= set(ids)
    assert "99 stored, 22 missing" in html


def test_the_numbers_stand_where_people_look() -> None:
    texts = read_page(page(findings())).texts
    for said in (
        "of 1 that were safe when the power went",
        "3 answered badly, 2 lost with the power",
        "2.7 MiB",
        "satellite/acme/fields/2026-03-01 is success after 2 verdicts.",
        "68 entries, each bound to the one before it: the chain is intact.",
        "SIGKILL",
    ):
        assert said in texts


def test_a_broken_chain_is_told() -> None:
    broken = evolve(
        findings(),
        chain={"intact": False, "checked": 3, "head": "3:x", "explanation": "entry 2 is missing"},
    )
    assert "The chain is broken: entry 2 is missing" in read_page(page(broken)).texts


def test_many_reasons_share_one_sign() -> None:
    waits = [
        Wait(at=BEGAN, delay_s=1, reason=f"reason {number}")
        for number in range(8)
        for _ in range(8 - number)
    ]
    groups = by_reason(waits)
    assert [*groups] == [*(f"reason {number}" for number in range(5)), "other"]
    assert sum(map(len, groups.values())) == len(waits)


@pytest.mark.parametrize("seconds", [1, 12, 119, 950, 80_000])
def test_a_story_of_any_length_fits(seconds: float) -> None:
    found = evolve(findings(), ended_at=after(seconds), waits=[])
    assert f"{seconds} seconds" in page(found)


def test_attributes_are_escaped_too() -> None:
    made: Any = element("p", words("<b>"), title='"><script>', class_="x", stroke_width=1)
    assert made == ('<p title="&quot;&gt;&lt;script&gt;" class="x" stroke-width="1">&lt;b&gt;</p>')
