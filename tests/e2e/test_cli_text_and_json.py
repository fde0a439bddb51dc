"""What a command shows to people is what it tells scripts, on terminals of any width."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cache_upload_env import write_captures
from support.download_operator import DownloadOperator
from support.provider import API_KEY, RunningProvider

from tileferry.domain.text import format_bytes
from tileferry.domain.tiles import build_capture_source
from tileferry.entrypoints.cli import output

AREA = ("--bbox", "36.20,50.00,36.22,50.02", "--zoom", "14,15")
SECTOR = ("--sector", "stable_rear")
PLACE = "16/39001/22000"
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # the command, and the keys whose values its text shows as well
    "coverage": (("coverage", *AREA), ("zooms.*.zoom", "zooms.*.tiles", "zooms.*.size_bytes")),
    "plan": (
        ("plan", *AREA, "--flight", "F2", *SECTOR),
        ("tiles_listed", "tiles_stored", "tiles_to_fetch", "bytes_to_fetch", "available_bytes"),
    ),
    "cache stats": (
        ("cache", "stats"),
        ("cache_root", "tiles", "used_bytes", "reserved_bytes", "budget_bytes"),
    ),
    "cache verify": (
        ("cache", "verify"),
        ("tiles", "live_bytes", "dead_bytes", "damaged_tiles", "damaged_segments"),
    ),
    "readiness": (
        ("cache", "verify", *AREA, *SECTOR, "--flight", "F1"),
        ("verdict", "source", "sector_class", "total.tiles", "total.present", "zooms.*.tiles"),
    ),
    "no-go": (
        ("cache", "verify", "--bbox", "37,50,37.01,50.01", "--zoom", "14", *SECTOR),
        ("verdict", "total.tiles", "total.holes"),
    ),
    "upload": (
        ("upload", "--flight", "F1", "--on-ground"),
        ("flight_id", "undelivered_giveups"),
    ),
    "giveups list": (
        ("giveups", "list"),
        ("giveups.*.tile_id", "giveups.*.attempts"),
    ),
    "giveups show": (
        ("giveups", "show", f"{build_capture_source('F1')}/{PLACE}"),
        ("tile_id", "flight_id", "attempts", "last_rejection_reason", "sha256", "size_bytes"),
    ),
    "runs list": (("runs", "list"), ("runs.*.run_id", "runs.*.status", "counts.passed")),
    "queue gates": (("queue", "gates"), ("sources.*.source", "sources.*.ready")),
    "audit verify": (("audit", "verify"), ("checked", "head")),
    "audit stats": (("audit", "stats"), ("events",)),
    "db status": (("db", "status"), ("server_version", "found", "needed")),
    "doctor": (("doctor",), ("findings.*.subject", "findings.*.verdict")),
    "unknown suffix": (("cache", "export", "area.zip"), ("error.message",)),
}


WIDE_ENOUGH = 80
DROPPED_WHEN_NARROW = {"giveups.*.attempts", "zooms.*.size_bytes"}


@pytest.fixture
def operator(
    tmp_path: Path, database_url: str, reference_provider: RunningProvider
) -> DownloadOperator:
    """An operator with a downloaded area, a delivered flight with a giveup, and a finished run."""
    person = DownloadOperator(
        tmp_path,
        database_url,
        reference_provider.url,
        settings={
            "TILEFERRY_C11_SERVICE_API_KEY": API_KEY,
            "TILEFERRY_C11_MAX_PER_TILE_ATTEMPTS": "1",
            "TILEFERRY_PARTITIONS_RAW_ROOT": str(tmp_path / "raw"),
        },
    )
    write_captures(tmp_path / "card", 3)
    reference_provider.set_faults(
        {"fault": "poison", "tile": f"{build_capture_source('F1')}/{PLACE}"}
    )
    for command, code in (
        (("download", *AREA, "--flight", "F1", *SECTOR), 0),
        (("ingest", "--flight", "F1", "card"), 0),
        (("upload", "--flight", "F1", "--on-ground"), 3),
        (("runs", "submit", "download", *AREA, "--flight", "F3", *SECTOR), 0),
        (("worker", "--until-idle"), 0),
    ):
        ran = person.run_in_process(*command)
        assert ran.code == code, ran.err
    return person


def iter_values(body: Any, path: str) -> Iterator[Any]:
    """Yield the values at a path; ``*`` is every item of a list."""
    head, _, rest = path.partition(".")
    for value in body if head == "*" else [body[head]]:
        yield from iter_values(value, rest) if rest else [value]


def list_forms(path: str, value: Any) -> list[str]:
    """Return how a person may be shown a value."""
    if isinstance(value, int) and path.endswith("bytes"):
        return [format_bytes(value)]
    if isinstance(value, int):
        return [f"{value:,}", "nothing"]
    return [str(value)]


def flatten(text: str) -> str:
    """Return the text without the breaks that a narrow terminal makes."""
    return re.sub(r"[\s┃│]", "", text)


def test_text_and_json_agree_at_any_width(
    operator: DownloadOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(operator.home)  # of now: other programs write as well
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: usage)
    problems = []
    for name, (command, paths) in COMMANDS.items():
        scripted = operator.run_in_process(*command, "--json")
        body = json.loads(scripted.out)
        for width in (200, 80, 60, 40):
            monkeypatch.setattr(output.stdout, "width", width)
            shown = operator.run_in_process(*command)
            if shown.code != scripted.code:
                problems.append(f"{name}: exit code {shown.code}, with --json {scripted.code}")
            text = flatten(shown.out + shown.err)
            if "…" in shown.out:
                problems.append(f"{name} at {width} columns: a value is cut\n{shown.out}")
            is_narrow = width < WIDE_ENOUGH
            problems += [
                f"{name} at {width} columns: {path} {value!r} is not shown\n{shown.out}"
                for path in paths
                for value in iter_values(body, path)
                if not (is_narrow and path in DROPPED_WHEN_NARROW)
                and not any(flatten(form) in text for form in list_forms(path, value))
            ]
    assert not problems, "\n".join(problems)
