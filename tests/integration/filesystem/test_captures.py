"""Taking in a folder as an aircraft leaves it: real files, a real cache, real Postgres."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve
from support.upload_process import PNG, UploadPlan, captured

from tileferry.adapters.filesystem import CaptureFolderFiles
from tileferry.adapters.filesystem.archives.tree import TreeSource
from tileferry.application import IngestReport
from tileferry.domain.errors import (
    ArchiveError,
    CacheBudgetExceededError,
    InvalidValueError,
    StorageError,
)
from tileferry.domain.tiles import TileMetadata, VotingStatus, ground_resolution
from tileferry.entrypoints.cli.exits import ExitCode, exit_code_of
from tileferry.entrypoints.config import C6Config, Config
from tileferry.entrypoints.container import Container
from tileferry.entrypoints.holding import locked


@pytest.fixture
def config(tmp_path: Path, database_url: str) -> Config:
    plan = UploadPlan(
        root=tmp_path / "cache", database_url=database_url, provider_url="", api_key=""
    )
    return plan.config


@pytest.fixture
def card(tmp_path: Path) -> Path:
    captured(tmp_path / "card", 6)
    return tmp_path / "card"


@pytest.fixture
def container(config: Config) -> Iterator[Container]:
    container = Container(config=config)
    with locked(container):
        yield container
    container.shutdown_resources()


def ingested(container: Container, card: Path, flight_id: str = "F1") -> IngestReport:
    report: IngestReport = container.capture_ingest().ingest(flight_id, CaptureFolderFiles(card))
    return report


def pending(container: Container, flight_id: str = "F1") -> list[TileMetadata]:
    return list(container.metadata_store().pending_uploads(flight_id))


def counts(report: IngestReport) -> tuple[int, int, int]:
    return report.tiles_ingested, report.tiles_unchanged, len(report.refused)


def test_each_tile_becomes_pending_once(container: Container, card: Path) -> None:
    assert counts(ingested(container, card)) == (6, 0, 0)
    rows = pending(container)
    assert [row.tile_id.x for row in rows] == list(range(39_000, 39_006))
    assert {row.produced_at.isoformat() for row in rows} == {"2026-10-20T08:00:00+00:00"}
    assert rows[0].resolution_m_per_px == ground_resolution(rows[0].tile_id)
    store = container.tile_store()
    assert store.read_tile(rows[3].tile_id) == (card / "16/39003/22000.png").read_bytes()
    assert counts(ingested(container, card)) == (0, 6, 0)
    assert pending(container) == rows


def test_another_flight_over_the_same_place_is_another_witness(
    container: Container, card: Path
) -> None:
    ingested(container, card)
    assert counts(ingested(container, card, "F2")) == (6, 0, 0)
    assert len(pending(container)) == len(pending(container, "F2")) == 6


def test_a_later_picture_takes_the_place_of_one_that_waits(
    container: Container, card: Path
) -> None:
    ingested(container, card)
    (card / "16/39002/22000.png").write_bytes(PNG + b"a better one")
    assert counts(ingested(container, card)) == (1, 5, 0)
    assert container.tile_store().read_tile(pending(container)[2].tile_id).endswith(b"better one")


def test_what_was_delivered_or_given_up_stays_as_it_is(container: Container, card: Path) -> None:
    ingested(container, card)
    store = container.metadata_store()
    rows = pending(container)
    store.mark_uploaded(rows[0].tile_id)
    store.update_voting_status(rows[1].tile_id, VotingStatus.UPLOAD_GIVEUP)
    assert counts(ingested(container, card)) == (0, 6, 0)
    (card / "16/39001/22000.png").write_bytes(PNG + b"another try")
    report = ingested(container, card)
    assert counts(report) == (0, 5, 1)
    assert report.refused[0].path == "16/39001/22000.png"
    assert "given up" in report.refused[0].problem
    assert len(pending(container)) == 4


def test_files_that_are_no_tiles_are_named_and_the_others_taken(
    container: Container, card: Path
) -> None:
    (card / "readme.txt").write_text("hello")
    (card / "16/39001/22000.png").write_bytes(b"")
    (card / "16/39002/22000.png").write_bytes(b"<html>")
    (card / "16/39003/99999.png").write_bytes(PNG)
    report = ingested(container, card)
    assert counts(report) == (4, 0, 4)
    assert {file.path: file.problem.partition(" (")[0] for file in report.refused} == {
        "16/39001/22000.png": "content: is empty",
        "16/39002/22000.png": "content: is no PNG, JPEG or WebP picture",
        "16/39003/99999.png": "TileId.y: must be a whole number from 0 to 65535 at zoom 16",
        "readme.txt": "path: is not z/x/y.<ext>, such as 16/39000/22000.png",
    }


def test_links_are_not_followed(container: Container, card: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(PNG + b"not yours")
    (card / "16/39007").mkdir()
    (card / "16/39007/22000.png").symlink_to(secret)
    (card / "17").symlink_to(tmp_path)
    os.mkfifo(card / "16/39007/22001.png")
    assert counts(ingested(container, card)) == (6, 0, 0)


def test_without_facts_the_files_own_time_counts(container: Container, card: Path) -> None:
    (card / "metadata.json").unlink()
    for path in card.rglob("*.png"):
        os.utime(path, (1_790_000_000, 1_790_000_000))
    ingested(container, card)
    assert {row.produced_at.timestamp() for row in pending(container)} == {1_790_000_000}


def test_facts_that_make_no_sense_stop_it_before_anything_is_stored(
    container: Container, card: Path
) -> None:
    (card / "metadata.json").write_text('{"captured_at": "soon"}')
    with pytest.raises(InvalidValueError, match=r"metadata\.json\.captured_at"):
        ingested(container, card)
    assert pending(container) == []


@pytest.mark.parametrize("kind", ["fifo", "link", "dangling link", "folder", "socket"])
def test_facts_that_are_no_file_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    planted = tmp_path / "metadata.json"
    plant_no_file(planted, kind)
    with pytest.raises(InvalidValueError, match=r"metadata\.json: is no regular file") as caught:
        CaptureFolderFiles(tmp_path).facts()
    assert exit_code_of(caught.value) is ExitCode.USAGE
    with pytest.raises(ArchiveError, match=r"metadata\.json: is no regular file") as refused:
        list(TreeSource(tmp_path).tiles("sat"))
    assert exit_code_of(refused.value) is ExitCode.REFUSED


def plant_no_file(path: Path, kind: str) -> None:
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "socket":
            os.mknod(path, stat.S_IFSOCK | 0o600)
        case _:
            facts = path.with_name("elsewhere.json")
            if kind == "link":
                facts.write_text("{}")
            path.symlink_to(facts)


def test_a_folder_without_facts_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert CaptureFolderFiles(tmp_path).facts() is None
    assert CaptureFolderFiles(tmp_path / "file").facts() is None


def test_a_cache_that_is_too_small_refuses_the_folder(config: Config, card: Path) -> None:
    container = Container(config=evolve(config, c6=C6Config(budget_bytes=500)))
    try:
        with locked(container), pytest.raises(CacheBudgetExceededError):
            ingested(container, card)
        assert pending(container) == []
    finally:
        container.shutdown_resources()


def test_a_folder_that_cannot_be_read_is_named(container: Container, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere"):
        ingested(container, tmp_path / "nowhere")


@pytest.mark.parametrize("names_all", [False, True])
def test_what_systems_leave_on_cards_is_passed_over(card: Path, *, names_all: bool) -> None:
    folder = CaptureFolderFiles(card, names_all=names_all)
    before = list(folder.files())
    (card / "System Volume Information").mkdir()
    (card / "System Volume Information" / "IndexerVolumeGuid").write_bytes(b"1")
    (card / "16" / "39000" / "._22000.png").write_bytes(b"2")
    (card / "16" / "Thumbs.db").write_bytes(b"3")
    assert list(folder.files()) == before
