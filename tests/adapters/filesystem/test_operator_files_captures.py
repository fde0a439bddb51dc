"""Taking in a folder as an aircraft leaves it: real files, a real cache, real Postgres."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve
from support.cache_upload_env import UploadPlan, write_captures
from support.pictures import make_picture

from tileferry.adapters.filesystem import CaptureFolderFiles
from tileferry.adapters.filesystem.archives.tree import TreeSource
from tileferry.application import IngestReport
from tileferry.domain.errors import (
    ArchiveError,
    CacheBudgetExceededError,
    InvalidValueError,
    Remedy,
    StorageError,
)
from tileferry.domain.tiles import TileMetadata, VotingStatus, compute_ground_resolution
from tileferry.domain.tiles.capture import TileScheme
from tileferry.entrypoints.cli.exit_codes import ExitCode, get_exit_code
from tileferry.entrypoints.config import C6Config, Config
from tileferry.entrypoints.container import Container


@pytest.fixture
def config(tmp_path: Path, database_url: str) -> Config:
    plan = UploadPlan(
        root=tmp_path / "cache", database_url=database_url, provider_url="", api_key=""
    )
    return plan.config


@pytest.fixture
def card(tmp_path: Path) -> Path:
    write_captures(tmp_path / "card", 6)
    return tmp_path / "card"


@pytest.fixture
def container(config: Config) -> Iterator[Container]:
    container = Container(config=config)
    with container.cache_session().hold():
        yield container
    container.shutdown_resources()


def ingest_card(container: Container, card: Path, flight_id: str = "F1") -> IngestReport:
    report: IngestReport = container.capture_ingest().ingest(flight_id, CaptureFolderFiles(card))
    return report


def list_pending(container: Container, flight_id: str = "F1") -> list[TileMetadata]:
    return list(container.metadata_store().pending_uploads(flight_id))


def count_results(report: IngestReport) -> tuple[int, int, int]:
    return report.tiles_ingested, report.tiles_unchanged, len(report.refused)


def test_captured_tiles_become_pending_once(container: Container, card: Path) -> None:
    assert count_results(ingest_card(container, card)) == (6, 0, 0)
    rows = list_pending(container)
    assert [row.tile_id.x for row in rows] == list(range(39_000, 39_006))
    assert {row.produced_at.isoformat() for row in rows} == {"2026-10-20T08:00:00+00:00"}
    assert rows[0].resolution_m_per_px == compute_ground_resolution(rows[0].tile_id)
    store = container.tile_store()
    assert store.read_tile(rows[3].tile_id) == (card / "16/39003/22000.png").read_bytes()
    assert count_results(ingest_card(container, card)) == (0, 6, 0)
    assert list_pending(container) == rows


def test_second_flight_over_the_same_tiles_is_ingested_separately(
    container: Container, card: Path
) -> None:
    ingest_card(container, card)
    assert count_results(ingest_card(container, card, "F2")) == (6, 0, 0)
    assert len(list_pending(container)) == len(list_pending(container, "F2")) == 6


def test_newer_image_replaces_a_pending_one(container: Container, card: Path) -> None:
    ingest_card(container, card)
    (card / "16/39002/22000.png").write_bytes(make_picture("a better one"))
    assert count_results(ingest_card(container, card)) == (1, 5, 0)
    replaced = list_pending(container)[2].tile_id
    assert container.tile_store().read_tile(replaced) == make_picture("a better one")


def test_uploaded_or_given_up_tiles_are_not_replaced(container: Container, card: Path) -> None:
    ingest_card(container, card)
    store = container.metadata_store()
    rows = list_pending(container)
    store.mark_uploaded(rows[0].tile_id)
    store.update_voting_status(rows[1].tile_id, VotingStatus.UPLOAD_GIVEUP)
    assert count_results(ingest_card(container, card)) == (0, 6, 0)
    (card / "16/39001/22000.png").write_bytes(make_picture("another try"))
    report = ingest_card(container, card)
    assert count_results(report) == (0, 5, 1)
    assert report.refused[0].path == "16/39001/22000.png"
    assert "given up" in report.refused[0].problem
    assert len(list_pending(container)) == 4


def test_invalid_files_are_refused_and_the_rest_ingested(container: Container, card: Path) -> None:
    (card / "readme.txt").write_text("hello")
    (card / "16/39001/22000.png").write_bytes(b"")
    (card / "16/39002/22000.png").write_bytes(b"<html>")
    (card / "16/39003/99999.png").write_bytes(make_picture("beyond"))
    report = ingest_card(container, card)
    assert count_results(report) == (4, 0, 4)
    assert {file.path: file.problem.partition(" (")[0] for file in report.refused} == {
        "16/39001/22000.png": "content: is empty",
        "16/39002/22000.png": "content: is not a PNG, JPEG, WebP or AVIF image",
        "16/39003/99999.png": "TileId.y: must be a whole number from 0 to 65535 at zoom 16",
        "readme.txt": "path: is not z/x/y.<ext>, such as 16/39000/22000.png",
    }


def test_symlinks_and_fifos_in_a_capture_folder_are_skipped(
    container: Container, card: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(make_picture("not yours"))
    (card / "16/39007").mkdir()
    (card / "16/39007/22000.png").symlink_to(secret)
    (card / "17").symlink_to(tmp_path)
    os.mkfifo(card / "16/39007/22001.png")
    assert count_results(ingest_card(container, card)) == (6, 0, 0)


def test_file_mtime_is_used_without_metadata_json(container: Container, card: Path) -> None:
    (card / "metadata.json").unlink()
    for path in card.rglob("*.png"):
        os.utime(path, (1_790_000_000, 1_790_000_000))
    ingest_card(container, card)
    assert {row.produced_at.timestamp() for row in list_pending(container)} == {1_790_000_000}


def test_invalid_metadata_json_aborts_before_anything_is_stored(
    container: Container, card: Path
) -> None:
    (card / "metadata.json").write_text('{"captured_at": "soon"}')
    with pytest.raises(InvalidValueError, match=r"metadata\.json\.captured_at"):
        ingest_card(container, card)
    assert list_pending(container) == []


@pytest.mark.parametrize("kind", ["fifo", "link", "dangling link", "folder", "socket"])
def test_metadata_json_that_is_not_a_regular_file_is_rejected(tmp_path: Path, kind: str) -> None:
    planted = tmp_path / "metadata.json"
    create_special_file(planted, kind)
    with pytest.raises(InvalidValueError, match=r"metadata\.json: is not a regular file") as caught:
        CaptureFolderFiles(tmp_path).read_facts()
    assert get_exit_code(caught.value) is ExitCode.USAGE
    with pytest.raises(ArchiveError, match=r"metadata\.json: is not a regular file") as refused:
        list(TreeSource(tmp_path).tiles("sat"))
    assert get_exit_code(refused.value) is ExitCode.REFUSED


def create_special_file(path: Path, kind: str) -> None:
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


def test_facts_are_none_without_metadata_json(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert CaptureFolderFiles(tmp_path).read_facts() is None
    assert CaptureFolderFiles(tmp_path / "file").read_facts() is None


def test_ingest_exceeding_the_cache_budget_is_rejected(config: Config, card: Path) -> None:
    container = Container(config=evolve(config, c6=C6Config(budget_bytes=500)))
    try:
        with container.cache_session().hold(), pytest.raises(CacheBudgetExceededError):
            ingest_card(container, card)
        assert list_pending(container) == []
    finally:
        container.shutdown_resources()


def test_unreadable_capture_folder_is_reported(container: Container, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere"):
        ingest_card(container, tmp_path / "nowhere")


@pytest.mark.parametrize("names_all", [False, True])
def test_operating_system_files_on_a_card_are_ignored(card: Path, *, names_all: bool) -> None:
    folder = CaptureFolderFiles(card, names_all=names_all)
    before = list(folder.iter_files())
    (card / "System Volume Information").mkdir()
    (card / "System Volume Information" / "IndexerVolumeGuid").write_bytes(b"1")
    (card / "16" / "39000" / "._22000.png").write_bytes(b"2")
    (card / "16" / "Thumbs.db").write_bytes(b"3")
    assert list(folder.iter_files()) == before


def write_gdal_tree(root: Path) -> None:
    """Write a tree as gdal2tiles does: rows from the south, and files for viewers."""
    (root / "15/19000").mkdir(parents=True)
    (root / "15/19000/21767.png").write_bytes(make_picture("a tile"))
    for name in ("tilemapresource.xml", "leaflet.html", "doc.kml", "15/19000/21767.kml"):
        (root / name).write_text("<?xml version='1.0'?>")


def test_tree_of_gdal2tiles_needs_its_scheme(container: Container, tmp_path: Path) -> None:
    write_gdal_tree(tmp_path / "tree")
    with pytest.raises(InvalidValueError, match=r"has a tilemapresource\.xml") as refused:
        ingest_card(container, tmp_path / "tree")
    assert refused.value.remedy is Remedy.NAME_SCHEME
    with pytest.raises(InvalidValueError, match=r"has a tilemapresource\.xml"):
        list(TreeSource(tmp_path / "tree").tiles("sat"))
    for scheme, row in ((TileScheme.TMS, 11_000), (TileScheme.XYZ, 21_767)):
        folder = CaptureFolderFiles(tmp_path / "tree", scheme=scheme)
        report: IngestReport = container.capture_ingest().ingest(f"F-{scheme}", folder)
        assert count_results(report) == (1, 0, 0)
        (tile,) = list_pending(container, f"F-{scheme}")
        assert (tile.tile_id.zoom, tile.tile_id.x, tile.tile_id.y) == (15, 19_000, row)
        (archived,) = TreeSource(tmp_path / "tree", scheme=scheme).iter_sizes("sat")
        assert archived[0].y == row


def test_tree_of_mb_util_is_ingested(container: Container, tmp_path: Path) -> None:
    write_captures(tmp_path / "tree", 2)
    (tmp_path / "tree/metadata.json").write_text('{"name": "a", "format": "png", "bounds": "1"}')
    assert count_results(ingest_card(container, tmp_path / "tree")) == (2, 0, 0)
