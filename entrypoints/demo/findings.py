"""The demo's figures: compares the provider's request record with the output of the commands."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from attrs import define, field, frozen

from tileferry.entrypoints.demo.scenario import CAPTURED_ZOOM, FAILING
from tileferry.entrypoints.demo.session import Chapter, DemoSession

Json = Mapping[str, Any]


@define(kw_only=True)
class DemoNotes:
    """Values that the chapters record for the report. Positions in the provider's record are line
    numbers.
    """

    before_download: int = 0
    before_resuming: int = 0
    after_download: int = 0
    killed: Json = field(factory=dict)
    """The area when the download was killed, as GeoJSON."""
    ready: Json = field(factory=dict)
    """The area before the flight, as GeoJSON."""


# the download


@frozen(kw_only=True)
class DownloadCounts:
    """Requests that the provider received, compared with the cache when the download was killed."""

    tiles: frozenset[str]
    safe: frozenset[str]
    """Tiles in the cache when the download was killed."""
    requests: int
    failed: int
    in_the_air: int
    """Tiles served successfully but not yet in the cache when the download was killed."""
    twice: int
    """How many of the safe tiles were requested again."""
    attempts: Mapping[int, int]
    """Number of tiles by the attempts that they needed."""


def count_download(lines: Sequence[Json], notes: DemoNotes) -> DownloadCounts:
    """Compare the provider's record with the map of the tiles that were safe when the download was
    killed.
    """
    before = _select_tile_requests(lines[notes.before_download : notes.before_resuming])
    after = _select_tile_requests(lines[notes.before_resuming : notes.after_download])
    tiles = frozenset(line["tile"] for line in (*before, *after))
    safe = tiles - set(list_tiles(notes.killed, "hole"))
    again = Counter(line["tile"] for line in after)
    failed = Counter(line["tile"] for line in (*before, *after) if not _is_good(line))
    good = {line["tile"] for line in before if _is_good(line)}
    return DownloadCounts(
        tiles=tiles,
        safe=safe,
        requests=len(before) + len(after),
        failed=failed.total(),
        in_the_air=len((good - safe) & again.keys()),
        twice=sum(tile in again for tile in safe),
        attempts=Counter(1 + failed[tile] for tile in tiles),
    )


def _select_tile_requests(lines: Iterable[Json]) -> list[Json]:
    return [line for line in lines if line.get("tile") is not None]


def _is_good(line: Json) -> bool:
    return line["status"] == 200 and line["fault"] is None  # noqa: PLR2004  # HTTP 200 OK


def list_tiles(drawn: Json, kind: str) -> Iterator[str]:
    """Yield the tiles of one kind in a GeoJSON map, as ``z/x/y``."""
    for feature in drawn.get("features", ()):
        place = feature["properties"]
        if place["kind"] == kind:
            for x in range(place["x_min"], place["x_max"] + 1):
                for y in range(place["y_min"], place["y_max"] + 1):
                    yield f"{place['zoom']}/{x}/{y}"


# the upload


@frozen(kw_only=True)
class UploadCounts:
    """Outcomes of the tiles that the flight captured."""

    accepted: frozenset[str]
    giveups: Sequence[Json]
    attempts: Mapping[int, int]

    @property
    def given_up(self) -> frozenset[str]:
        """The tiles that need an operator's decision."""
        return frozenset(_shorten_tile_id(giveup["tile_id"]) for giveup in self.giveups)


def count_upload(lines: Iterable[Json], giveups: Json) -> UploadCounts:
    """Count delivered tiles from the provider's record, and the others from the giveups."""
    taken = frozenset(
        _shorten_tile_id(line["tile_id"])
        for line in lines
        if line["kind"] == "upload" and line["status"] == "accepted"
    )
    attempts = Counter(giveup["attempts"] for giveup in giveups["giveups"])
    return UploadCounts(
        accepted=taken,
        giveups=giveups["giveups"],
        attempts=attempts + Counter({1: len(taken)}),
    )


def _shorten_tile_id(tile_id: str) -> str:
    return tile_id[tile_id.index(f"/{CAPTURED_ZOOM}/") + 1 :]


_STATUS = re.compile(r"HTTP \d{3}")
_REASON_CHARS_MAX = 60


# the audit log


@frozen(kw_only=True)
class AuditedRetry:
    """A retry as the audit log recorded it."""

    at: datetime
    delay_s: float
    reason: str


def list_waits(tail: Json) -> list[AuditedRetry]:
    """Return every retry in order, with its wait and reason."""
    return [
        AuditedRetry(
            at=datetime.fromisoformat(event["timestamp"]),
            delay_s=float(event["delay_seconds"]),
            reason=summarize_reason(event["exception_message"]),
        )
        for event in _select_events(tail, "retry_attempt")
    ]


def summarize_reason(message: str) -> str:
    """Return the few words that distinguish an error from others."""
    status = _STATUS.search(message)
    if status:
        return status[0]
    text = message.removeprefix("provider: ").partition(",")[0].partition(":")[0]
    return text[:_REASON_CHARS_MAX]


def find_instructive_entry(tail: Json) -> int | None:
    """Return the entry number of a retry worth showing, preferably one with a requested wait."""
    entries = [one for one in tail["entries"] if one["event"]["event_type"] == "retry_attempt"]
    asked = [one for one in entries if "429" in one["event"]["exception_message"]]
    return next((one["sequence"] for one in (*asked, *entries)), None)


def find_failed_run(partition: Json) -> str:
    """Return the first run that the validator rejected."""
    return str(next(one["run_id"] for one in partition["verdicts"] if one["outcome"] == "failed"))


def _select_events(tail: Json, kind: str) -> Iterator[Json]:
    return (one["event"] for one in tail["entries"] if one["event"]["event_type"] == kind)


# the whole demo


@frozen(kw_only=True)
class Findings:
    """Everything that the report shows."""

    chapters: Sequence[Chapter]
    ended_at: datetime
    notes: DemoNotes
    download: DownloadCounts
    upload: UploadCounts
    cache: Json
    waits: Sequence[AuditedRetry]
    partition: Json
    changes: Sequence[Json]
    """The partition's entries in the audit log."""
    chain: Json

    @property
    def began_at(self) -> datetime:
        """When the demo began."""
        return self.chapters[0].began_at

    @property
    def seconds(self) -> float:
        """How long the demo took."""
        return self.get_elapsed_s(self.ended_at)

    @property
    def killed_after_s(self) -> float:
        """Seconds from the start of the demo to the kill."""
        killed = next(one for chapter in self.chapters for one in chapter.commands if one.killed)
        return self.get_elapsed_s(killed.ended_at)

    def get_elapsed_s(self, moment: datetime) -> float:
        """Return the seconds from the start of the demo to ``moment``."""
        return (moment - self.began_at).total_seconds()

    def find_chapter(self, moment: datetime) -> Chapter:
        """Return the chapter that was playing at ``moment``."""
        begun = [chapter for chapter in self.chapters if chapter.began_at <= moment]
        return begun[-1] if begun else self.chapters[0]

    def to_json(self) -> dict[str, Any]:
        """Return the figures for scripts."""
        return {
            "seconds": round(self.seconds, 1),
            "tiles": len(self.download.tiles),
            "cached_bytes": self.cache["used_bytes"],
            "tile_requests": self.download.requests,
            "bad_answers": self.download.failed,
            "safe_when_killed": len(self.download.safe),
            "in_the_air_when_killed": self.download.in_the_air,
            "fetched_twice": self.download.twice,
            "verdicts": [self.notes.killed["verdict"], self.notes.ready["verdict"]],
            "delivered": len(self.upload.accepted),
            "given_up": sorted(self.upload.given_up),
            "retries": len(self.waits),
            "waited_s": round(sum(wait.delay_s for wait in self.waits), 3),
            "partition": self.partition["partition"],
            "partition_outcomes": [one["outcome"] for one in self.partition["verdicts"]],
            "audit_entries": self.chain["checked"],
            "audit_intact": self.chain["intact"],
        }


def collect_findings(session: DemoSession, notes: DemoNotes) -> Findings:
    """Query the remaining facts and return all findings."""
    ask, lines = session.clerk.query, session.read_record()
    tail = ask("audit", "tail", "--limit", "100000")
    partition = ask("state", "inspect", FAILING)
    chain = ask("audit", "verify")
    return Findings(
        chapters=session.chapters,
        ended_at=session.chapters[-1].commands[-1].ended_at,
        notes=notes,
        download=count_download(lines, notes),
        upload=count_upload(lines, ask("giveups", "list")),
        cache=ask("cache", "stats"),
        waits=list_waits(tail),
        partition=partition,
        changes=[
            event
            for event in _select_events(tail, "state_change")
            if event["subject"] == f"partition {FAILING}"
        ],
        chain=chain,
    )
