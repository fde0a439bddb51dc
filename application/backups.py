"""Create, verify and restore backups of an installation.

A backup can be created while a download runs. The order of copying keeps the invariant of the cache
(a journaled tile has its row, and a row has its bytes): journals first, then a snapshot of the
database, then the bytes, which are append-only. Nothing is removed before it is copied.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import PurePath

from attrs import define, field, frozen

from tileferry.application.audit_reader import AuditVerification
from tileferry.application.cache.bulk_store import BoundedList
from tileferry.application.cache.verification import VerificationReport
from tileferry.application.ports.backups import (
    BackupContent,
    BackupStore,
    BackupWriter,
    CopyOrder,
    DatabaseCopies,
    InstallationFile,
    InstallationFiles,
)
from tileferry.application.ports.clock import Clock
from tileferry.application.ports.progress import (
    NULL_LISTENER,
    ItemsProcessed,
    ProgressListener,
    Task,
)
from tileferry.domain.audit import ChainHead
from tileferry.domain.backups import (
    DATABASE_DUMP,
    LISTING,
    BackupFile,
    BackupManifest,
    check_backup_path,
)
from tileferry.domain.errors import BackupError, InvalidValueError, StorageError


@frozen(kw_only=True)
class DamagedFile:
    """A file of a backup that is damaged, missing or not listed."""

    path: str
    problem: str


@define(kw_only=True)
class BackupReport:
    """The result of verifying a backup."""

    manifest: BackupManifest
    damage: BoundedList[DamagedFile] = field(factory=BoundedList)

    @property
    def sound(self) -> bool:
        """Whether every byte is intact."""
        return not self.damage.count


@frozen(kw_only=True)
class RestoreReport:
    """The result of verifying a restored installation."""

    manifest: BackupManifest
    cache: VerificationReport
    audit: AuditVerification

    @property
    def sound(self) -> bool:
        """Whether every tile and every audit entry is intact."""
        return self.cache.sound and self.audit.intact


@define(kw_only=True)
class Backups:
    """Creates, verifies and restores backups."""

    store: BackupStore
    files: InstallationFiles
    database: Callable[[], DatabaseCopies]
    """Opens the database; ``verify`` does not call it."""
    clock: Clock
    version: str
    """The version of the product."""
    verify_cache: Callable[[], VerificationReport]
    verify_audit: Callable[[ChainHead], AuditVerification]
    progress: ProgressListener = NULL_LISTENER

    def create(self, place: PurePath) -> BackupManifest:
        """Copy the installation, verify the copy, and give it its final name."""
        database = self.database()
        with (
            self.files.keep_segments(),
            self.store.create(place) as writer,
            ExitStack() as stack,
        ):
            copy = _Copy(writer, self.progress)
            with database.hold_removals():
                copy.add_all(self.files.iter_files(CopyOrder.BEFORE_DATABASE))
                snapshot = stack.enter_context(database.open_snapshot())
            copy.add(DATABASE_DUMP, snapshot.iter_dump())
            copy.add_all(self.files.iter_files(CopyOrder.AFTER_DATABASE))
            manifest = BackupManifest(
                created_at=datetime.fromtimestamp(self.clock.now(), UTC),
                created_by=self.version,
                database=snapshot.facts,
                files=copy.files,
                size_bytes=copy.size_bytes,
                files_sha256=writer.finish_listing(),
            )
            self._require_sound(place, manifest, writer, "check the disk, then re-run")
            writer.publish(manifest)
        return manifest

    def verify(self, place: PurePath) -> BackupReport:
        """Compare every byte of a backup with its checksums; restore nothing."""
        with self.store.open(place) as backup:
            report = BackupReport(manifest=backup.manifest)
            for damaged in self._iter_damage(backup.manifest, backup):
                report.damage.add(damaged)
        return report

    def restore(self, place: PurePath) -> RestoreReport:
        """Restore a backup into an empty database and empty folders, and verify the result."""
        with self.store.open(place) as backup:
            manifest = backup.manifest
            database = self.database()
            database.check_loadable(manifest.database)
            with self.files.begin_restore() as restored:
                self._require_sound(place, manifest, backup, "use another backup")
                for line in backup.iter_listing():
                    path = BackupFile.parse_line(line).path
                    if path != DATABASE_DUMP:
                        restored.add(path, backup.iter_content(path))
                    self.progress(ItemsProcessed(task=Task.RESTORE_BACKUP, total=manifest.files))
                database.load(backup.iter_content(DATABASE_DUMP))
                restored.publish()
        facts = manifest.database
        return RestoreReport(
            manifest=manifest,
            cache=self.verify_cache(),
            audit=self.verify_audit(
                ChainHead(sequence=facts.audit_sequence, hash=facts.audit_hash)
            ),
        )

    def _require_sound(
        self, place: PurePath, manifest: BackupManifest, content: BackupContent, remedy: str
    ) -> None:
        for damaged in self._iter_damage(manifest, content):
            raise BackupError(
                path=str(place), problem=f"{damaged.path}: {damaged.problem}", remedy=remedy
            )

    def _iter_damage(
        self, manifest: BackupManifest, content: BackupContent
    ) -> Iterator[DamagedFile]:
        listed, size_bytes, hashed = 0, 0, sha256()
        for line in content.iter_listing():
            hashed.update(line)
            listed += 1
            try:
                file = BackupFile.parse_line(line)
            except InvalidValueError as error:
                yield DamagedFile(path=LISTING, problem=f"line {listed}: {error.problem}")
                continue
            size_bytes += file.size_bytes
            problem = _find_problem(file, content)
            if problem is not None:
                yield DamagedFile(path=file.path, problem=problem)
            self.progress(ItemsProcessed(task=Task.VERIFY_BACKUP, total=manifest.files))
        sums = (hashed.hexdigest(), listed, size_bytes)
        if sums != (manifest.files_sha256, manifest.files, manifest.size_bytes):
            yield DamagedFile(path=LISTING, problem="does not match the manifest")
        extra = content.count_files() - listed
        if extra > 0:
            yield DamagedFile(path=".", problem=f"{extra} files are not listed")


@define
class _Copy:
    """Adds files to a backup, and counts them."""

    _writer: BackupWriter
    _progress: ProgressListener
    files: int = field(default=0, init=False)
    size_bytes: int = field(default=0, init=False)

    def add_all(self, files: Iterable[InstallationFile]) -> None:
        for file in files:
            self.add(file.path, file.content)

    def add(self, path: str, content: Iterable[bytes]) -> None:
        check_backup_path(path)
        self.files += 1
        self.size_bytes += self._writer.add(path, content).size_bytes
        self._progress(ItemsProcessed(task=Task.CREATE_BACKUP))


def _find_problem(file: BackupFile, backup: BackupContent) -> str | None:
    """Return how a file differs from its listing; ``None`` if it does not."""
    hashed, size_bytes = sha256(), 0
    try:
        for chunk in backup.iter_content(file.path):
            hashed.update(chunk)
            size_bytes += len(chunk)
    except StorageError as error:
        return error.problem
    if size_bytes != file.size_bytes:
        return f"has {size_bytes} bytes instead of {file.size_bytes}"
    return None if hashed.hexdigest() == file.sha256 else "sha256 mismatch"
