"""What the story comes to, from what commands printed as JSON and from the provider's record."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from attrs import frozen

from tileferry.entrypoints.demo.counting import (
    Delivered,
    Downloaded,
    Json,
    Notebook,
    delivered,
    downloaded,
)
from tileferry.entrypoints.demo.scenery import FAILING
from tileferry.entrypoints.demo.stage import Chapter, Stage

_STATUS = re.compile(r"HTTP \d{3}")
_REASON_CHARS_MAX = 60


# the audit log


@frozen(kw_only=True)
class Wait:
    """One decision to try again later."""

    at: datetime
    delay_s: float
    reason: str


def waits(tail: Json) -> list[Wait]:
    """Return every retry, in order, by what it was for."""
    return [
        Wait(
            at=datetime.fromisoformat(event["timestamp"]),
            delay_s=float(event["delay_seconds"]),
            reason=reason_of(event["exception_message"]),
        )
        for event in _events(tail, "retry_attempt")
    ]


def reason_of(message: str) -> str:
    """Return the few words of an error that tell it from others."""
    status = _STATUS.search(message)
    if status:
        return status[0]
    text = message.removeprefix("satellite-provider: ").partition(",")[0].partition(":")[0]
    return text[:_REASON_CHARS_MAX]


def instructive_entry(tail: Json) -> int | None:
    """Return the number of the retry to look at: one whose wait the provider asked for, if any."""
    entries = [one for one in tail["entries"] if one["event"]["event_type"] == "retry_attempt"]
    asked = [one for one in entries if "429" in one["event"]["exception_message"]]
    return next((one["sequence"] for one in (*asked, *entries)), None)


def failed_run(partition: Json) -> str:
    """Return the run that the validator rejected first."""
    return str(next(one["run_id"] for one in partition["verdicts"] if one["outcome"] == "failed"))


def _events(tail: Json, kind: str) -> Iterator[Json]:
    return (one["event"] for one in tail["entries"] if one["event"]["event_type"] == kind)


# all of it


@frozen(kw_only=True)
class Findings:
    """Everything that the report shows."""

    chapters: Sequence[Chapter]
    ended_at: datetime
    notes: Notebook
    download: Downloaded
    upload: Delivered
    cache: Json
    waits: Sequence[Wait]
    partition: Json
    changes: Sequence[Json]
    """What the audit log has of the partition."""
    chain: Json

    @property
    def began_at(self) -> datetime:
        """When the story began."""
        return self.chapters[0].began_at

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.since(self.ended_at)

    @property
    def killed_after_s(self) -> float:
        """When the power went, since the beginning."""
        killed = next(one for chapter in self.chapters for one in chapter.commands if one.killed)
        return self.since(killed.ended_at)

    def since(self, moment: datetime) -> float:
        """Return how many seconds of the story had passed by then."""
        return (moment - self.began_at).total_seconds()

    def chapter_at(self, moment: datetime) -> Chapter:
        """Return the chapter that was played then."""
        begun = [chapter for chapter in self.chapters if chapter.began_at <= moment]
        return begun[-1] if begun else self.chapters[0]

    def facts(self) -> dict[str, Any]:
        """Return the numbers, for scripts."""
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


def gather(stage: Stage, notes: Notebook) -> Findings:
    """Ask for what is not known yet."""
    ask, lines = stage.clerk.ask, stage.lines()
    tail = ask("audit", "tail", "--limit", "100000")
    partition = ask("state", "inspect", FAILING)
    chain = ask("audit", "verify")
    return Findings(
        chapters=stage.chapters,
        ended_at=stage.chapters[-1].commands[-1].ended_at,
        notes=notes,
        download=downloaded(lines, notes),
        upload=delivered(lines, ask("giveups", "list")),
        cache=ask("cache", "stats"),
        waits=waits(tail),
        partition=partition,
        changes=[
            event
            for event in _events(tail, "state_change")
            if event["subject"] == f"partition {FAILING}"
        ],
        chain=chain,
    )
