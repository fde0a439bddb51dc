"""Creating, verifying and restoring backups, over files and a database of the test's own."""

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import define, evolve, field, frozen

from tileferry.adapters.filesystem import FileCalls, FolderBackups, LocalInstallationFiles
from tileferry.adapters.memory import ManualClock
from tileferry.application.audit_reader import AuditVerification
from tileferry.application.backups import Backups
from tileferry.application.cache.verification import VerificationReport
from tileferry.application.ports.progress import ItemsProcessed, ProgressEvent, Task
from tileferry.domain.audit import ChainHead, verify_chain
from tileferry.domain.backups import LISTING, MANIFEST, DatabaseFacts
from tileferry.domain.errors import (
    BackupError,
    CacheLockError,
    InvalidValueError,
    StorageError,
)

FACTS = DatabaseFacts(
    schema_revision="0015", server_version="18", tiles=1, audit_sequence=0, audit_hash="0" * 64
)


@frozen
class Snapshot:
    facts: DatabaseFacts
    content: bytes

    def iter_dump(self) -> Iterator[bytes]:
        yield self.content


@define
class FakeDatabase:
    """A database of one value."""

    content: bytes = b""
    events: list[str] = field(factory=list)

    @contextmanager
    def hold_removals(self) -> Iterator[None]:
        self.events.append("held")
        yield
        self.events.append("released")

    @contextmanager
    def open_snapshot(self) -> Iterator[Snapshot]:
        self.events.append("snapshot")
        yield Snapshot(FACTS, self.content)

    def check_loadable(self, facts: DatabaseFacts) -> None:
        assert facts == FACTS

    def load(self, dump: Iterable[bytes]) -> None:
        self.content = b"".join(dump)


@define
class Site:
    """An installation in a folder."""

    root: Path
    database: FakeDatabase = field(factory=FakeDatabase)
    cache: VerificationReport = field(factory=VerificationReport)
    seen: list[ProgressEvent] = field(factory=list)
    calls: FileCalls = field(factory=FileCalls)

    def write(self, path: str, content: bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    @property
    def backups(self) -> Backups:
        return Backups(
            store=FolderBackups(self.calls),
            files=LocalInstallationFiles(
                cache_root=self.root / "cache",
                raw_root=self.root / "raw",
                clock=ManualClock(0.0),
            ),
            database=lambda: self.database,
            clock=ManualClock(0.0),
            version="1",
            verify_cache=lambda: self.cache,
            verify_audit=self._verify_audit,
            progress=self.seen.append,
        )

    def _verify_audit(self, noted: ChainHead) -> AuditVerification:
        return AuditVerification(chain=verify_chain([], expected_head=noted))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path / "site", FakeDatabase(b"rows"))
    site.write("cache/.c11/journal/F1.json", b"journal")
    site.write("cache/.c11/cache-id", b"id")
    site.write("cache/.c11/lock", b"me")
    site.write("cache/.c6/segments/1.seg", b"tiles" * 1_000)
    site.write("raw/s/c/q/2026-01-01/run/manifest.json", b"sealed")
    site.write("raw/s/c/q/2026-01-01/.other.open/x", b"unsealed")
    return site


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "backup"


def test_journals_are_copied_before_rows_and_bytes_after_them(site: Site, place: Path) -> None:
    manifest = site.backups.create(place)
    assert site.database.events == ["held", "snapshot", "released"]
    listed = [line.split(b'"')[3].decode() for line in (place / LISTING).read_bytes().splitlines()]
    assert listed == [
        "cache/.c11/journal/F1.json",
        "database.dump",
        "cache/.c6/segments/1.seg",
        "cache/.c11/cache-id",
        "raw/s/c/q/2026-01-01/run/manifest.json",
    ]
    assert (manifest.files, manifest.size_bytes) == (5, 5_000 + 7 + 2 + 6 + 4)
    assert ItemsProcessed(task=Task.VERIFY_BACKUP, total=5) in site.seen


def test_backup_is_restored_into_an_empty_site(site: Site, place: Path, tmp_path: Path) -> None:
    manifest = site.backups.create(place)
    other = Site(tmp_path / "other")
    report = other.backups.restore(place)
    assert (report.sound, report.manifest, other.database.content) == (True, manifest, b"rows")
    files = {path.relative_to(other.root) for path in other.root.rglob("*") if path.is_file()}
    assert files == {
        Path("cache/.c11/journal/F1.json"),
        Path("cache/.c11/cache-id"),
        Path("cache/.c6/segments/1.seg"),
        Path("raw/s/c/q/2026-01-01/run/manifest.json"),
    }
    damaged = Site(tmp_path / "third", cache=VerificationReport(damaged_tiles=1))
    assert not damaged.backups.restore(place).sound


def test_damage_is_found_named_and_not_restored(site: Site, place: Path, tmp_path: Path) -> None:
    site.backups.create(place)
    segment = place / "cache/.c6/segments/1.seg"
    segment.write_bytes(b"Tiles" * 1_000)
    (place / "database.dump").write_bytes(b"row")
    (place / "cache/.c11/cache-id").unlink()
    (place / "raw/surprise").touch()
    (place / "raw/another").touch()
    report = site.backups.verify(place)
    assert {(one.path, one.problem) for one in report.damage.named} == {
        ("cache/.c6/segments/1.seg", "sha256 mismatch"),
        ("database.dump", "has 3 bytes instead of 4"),
        ("cache/.c11/cache-id", "is missing"),
        (".", "1 files are not listed"),
    }
    other = Site(tmp_path / "other")
    with pytest.raises(BackupError, match="has 3 bytes"):
        other.backups.restore(place)
    assert not [path for path in other.root.rglob("*") if path.is_file()]
    assert other.database.content == b""


def test_damaged_list_is_found(site: Site, place: Path) -> None:
    site.backups.create(place)
    listing = place / LISTING
    whole = listing.read_bytes()
    listing.write_bytes(whole + b"{}\n")
    problems = [one.problem for one in site.backups.verify(place).damage.named]
    assert problems == ["line 6: is missing", "does not match the manifest"]
    listing.write_bytes(whole[:-1])
    assert not site.backups.verify(place).sound
    (place / MANIFEST).unlink()
    with pytest.raises(BackupError, match="not a complete backup"):
        site.backups.verify(place)
    with pytest.raises(BackupError, match="is not a folder"):
        site.backups.verify(place / "nowhere")


def test_copy_that_cannot_be_read_back_is_not_published(site: Site, place: Path) -> None:
    def pread(fd: int, length: int, offset: int) -> bytes:
        found = FileCalls().pread(fd, length, offset)
        return found.replace(b"tiles", b"Tiles", 1)

    site.calls = FileCalls(pread=pread)
    with pytest.raises(BackupError, match="sha256 mismatch"):
        site.backups.create(place)
    assert not place.exists()
    assert [path.name for path in place.parent.iterdir()] == ["site"]


def test_file_outside_of_both_folders_is_not_restored(site: Site) -> None:
    files = LocalInstallationFiles(
        cache_root=site.root / "a", raw_root=site.root / "b", clock=ManualClock(0.0)
    )
    with (
        files.begin_restore() as restored,
        pytest.raises(InvalidValueError, match="below neither"),
    ):
        restored.add("elsewhere/file", [b""])
    with (
        files.begin_restore(),
        pytest.raises(BackupError, match="another restore"),
        files.begin_restore(),
    ):
        pass


def test_backup_waits_for_a_compaction_and_then_gives_up(site: Site, place: Path) -> None:
    held = os.open(site.root / "cache/.c6/segments", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(CacheLockError, match="a compaction of the cache is running"):
        site.backups.create(place)
    os.close(held)


def test_id_of_the_cache_is_restored_last(site: Site, place: Path, tmp_path: Path) -> None:
    def rename(source: str, target: str, **folders: int) -> None:
        if source == ".c11":
            raise OSError(errno.EIO, "broken")
        os.rename(source, target, **folders)  # noqa: PTH104  # relative to open folders

    site.backups.create(place)
    other = Site(tmp_path / "other")
    files = LocalInstallationFiles(
        cache_root=other.root / "cache",
        raw_root=other.root / "raw",
        clock=ManualClock(0.0),
        calls=FileCalls(rename=rename),
    )
    with pytest.raises(StorageError, match="broken"):
        evolve(other.backups, files=files).restore(place)
    assert (other.root / "cache/.c6/segments/1.seg").exists()
    assert not (other.root / "cache/.c11").exists()
