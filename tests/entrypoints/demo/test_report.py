"""The demo's page: whoever wrote what stands in it, it is text, and nothing is fetched or run."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve
from support.html_page import parse_page

from tileferry.entrypoints.demo.findings import (
    AuditedRetry,
    DemoNotes,
    DownloadCounts,
    Findings,
    UploadCounts,
)
from tileferry.entrypoints.demo.report.charts import group_by_reason
from tileferry.entrypoints.demo.report.page import render_report
from tileferry.entrypoints.demo.session import Chapter, CommandRun
from tileferry.entrypoints.report.markup import element, escape_text

BEGAN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOSTILE = "</title></style><script>alert(1)</script><img src=x onerror='alert(2)'> & \"so\" on"
BBOX = [36.20, 49.90, 36.42, 50.04]


def seconds_later(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def make_findings(said: str = "clouds: 93 %") -> Findings:
    """A small story in which ``said`` stands wherever others may have written."""
    drawn = {"verdict": said, "bbox": BBOX, "features": []}
    hole = {"kind": "hole", "zoom": 14, "x_min": 9839, "x_max": 9849, "y_min": 5553, "y_max": 5554}
    return Findings(
        chapters=[
            Chapter(
                said,
                BEGAN,
                [
                    CommandRun(said, BEGAN, seconds_later(4), killed=True),
                    CommandRun("worker", seconds_later(4), seconds_later(9)),
                ],
            ),
            Chapter(
                "Why?",
                seconds_later(9),
                [CommandRun("audit verify", seconds_later(9), seconds_later(12))],
            ),
        ],
        ended_at=seconds_later(12),
        notes=DemoNotes(
            killed={**drawn, "features": [{"properties": hole}]}, ready={**drawn, "verdict": "GO"}
        ),
        download=DownloadCounts(
            tiles=frozenset({"14/9839/5553", "14/9840/5553"}),
            safe=frozenset({"14/9840/5553"}),
            requests=17,
            failed=3,
            in_the_air=2,
            twice=0,
            attempts={1: 120, 3: 1},
        ),
        upload=UploadCounts(
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
        waits=[
            AuditedRetry(at=seconds_later(second), delay_s=second / 2, reason=said)
            for second in (1, 2, 5)
        ],
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


def test_hostile_text_is_escaped() -> None:
    tame, hostile = (
        parse_page(render_report(make_findings())),
        parse_page(render_report(make_findings(HOSTILE))),
    )
    assert hostile.tags == tame.tags
    assert [name for name, _ in hostile.attributes] == [name for name, _ in tame.attributes]
    assert not {"script", "img", "iframe", "link", "object"} & set(hostile.tags)
    assert not [name for name, _ in hostile.attributes if name.startswith("on")]
    assert hostile.texts.count(HOSTILE) >= 3  # as it was said: giveup, partition, head


def test_page_is_self_contained_and_has_csp() -> None:
    html = render_report(make_findings())
    assert "http://" not in html
    assert "https://" not in html
    assert "url(" not in html
    assert "@import" not in html
    contents = [value for name, value in parse_page(html).attributes if name == "content"]
    assert any(value.startswith("default-src 'none'; style-src 'unsafe-") for value in contents)
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_every_picture_has_a_text_alternative() -> None:
    html = render_report(make_findings())
    parsed = parse_page(html)
    pictures = parsed.tags.count("svg")
    named = [value for name, value in parsed.attributes if name == "aria-labelledby"]
    hidden = [value for name, value in parsed.attributes if name == "aria-hidden"]
    assert len(named) == 5  # two maps of the area, one of the flight, two plots
    assert pictures <= len(named) + len(hidden)
    ids = [value for name, value in parsed.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {part for value in named for part in value.split()} <= set(ids)
    assert "99 stored, 22 missing" in html


def test_page_shows_key_figures() -> None:
    texts = parse_page(render_report(make_findings())).texts
    for said in (
        "of 1 that were safe at the power loss",
        "3 failed, 2 lost with the power",
        "2.7 MiB",
        "satellite/acme/fields/2026-03-01 is success after 2 verdicts.",
        "68 entries, linked by their hashes: the chain is intact.",
        "SIGKILL",
    ):
        assert said in texts


def test_broken_chain_is_reported() -> None:
    broken = evolve(
        make_findings(),
        chain={"intact": False, "checked": 3, "head": "3:x", "explanation": "entry 2 is missing"},
    )
    assert "The chain is broken: entry 2 is missing" in parse_page(render_report(broken)).texts


def test_rare_wait_reasons_are_grouped_as_other() -> None:
    waits = [
        AuditedRetry(at=BEGAN, delay_s=1, reason=f"reason {number}")
        for number in range(8)
        for _ in range(8 - number)
    ]
    groups = group_by_reason(waits)
    assert [*groups] == [*(f"reason {number}" for number in range(5)), "other"]
    assert sum(map(len, groups.values())) == len(waits)


@pytest.mark.parametrize("seconds", [1, 12, 119, 950, 80_000])
def test_report_of_any_duration_is_rendered(seconds: float) -> None:
    found = evolve(make_findings(), ended_at=seconds_later(seconds), waits=[])
    assert f"{seconds} seconds" in render_report(found)


def test_attributes_are_escaped() -> None:
    made: Any = element("p", escape_text("<b>"), title='"><script>', class_="x", stroke_width=1)
    assert made == ('<p title="&quot;&gt;&lt;script&gt;" class="x" stroke-width="1">&lt;b&gt;</p>')
