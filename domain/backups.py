"""Backups: the list of their files, and the manifest that makes them complete.

A backup is a folder. ``files.jsonl`` has one line for each of its files, and ``manifest.json`` has
the number, the size and the checksum of that list. The manifest is written last and has a checksum
of its own, so every changed, missing or added byte is detected.
"""

import re
from datetime import datetime
from hashlib import sha256

from attrs import asdict, field, frozen

from tileferry.domain.canonical import JsonValue, canonical_json
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.json import JsonObject, parse_json
from tileferry.domain.validation import aware, integer, sha256_hex, text

FORMAT = "tileferry.backup"
VERSION = 1
MANIFEST = "manifest.json"
LISTING = "files.jsonl"
DATABASE_DUMP = "database.dump"
MANIFEST_BYTES_MAX = 65_536
LINE_BYTES_MAX = 8_192
_PATH_CHARS_MAX = 4_096
_PART = re.compile(r"(?!\.{1,2}\Z)[^/\0-\x1f\x7f]{1,255}")
_NEWER = "use the version that created the backup, or a later one"


def check_backup_path(path: str) -> None:
    """Raise unless the path is relative and stays below its root."""
    parts = path.split("/")
    if len(path) > _PATH_CHARS_MAX or not all(map(_PART.fullmatch, parts)):
        raise InvalidValueError(
            field="path", value=path, problem="is not a plain path below the backup"
        )


@frozen(kw_only=True)
class BackupFile:
    """A file of a backup."""

    path: str
    size_bytes: int = field(validator=integer(0))
    sha256: str = field(validator=sha256_hex)

    def __attrs_post_init__(self) -> None:
        check_backup_path(self.path)

    def format_line(self) -> bytes:
        """Return the file's line in the listing."""
        return canonical_json(asdict(self)) + b"\n"

    @classmethod
    def parse_line(cls, line: bytes) -> "BackupFile":
        """Parse a line of the listing."""
        found = JsonObject.from_value(
            parse_json(line, field="files", bytes_max=LINE_BYTES_MAX), "files"
        )
        found.check_names({"path", "size_bytes", "sha256"})
        return cls(
            path=found.get("path", str),
            size_bytes=found.get("size_bytes", int),
            sha256=found.get("sha256", str),
        )


@frozen(kw_only=True)
class DatabaseFacts:
    """The state of the database in the snapshot of a backup."""

    schema_revision: str = field(validator=text)
    server_version: str = field(validator=text)
    tiles: int = field(validator=integer(0))
    audit_sequence: int = field(validator=integer(0))
    audit_hash: str = field(validator=sha256_hex)


@frozen(kw_only=True)
class BackupManifest:
    """Describes the content of a backup. Only a complete backup has one."""

    created_at: datetime = field(validator=aware)
    created_by: str = field(validator=text)
    """The version of the product."""
    database: DatabaseFacts
    files: int = field(validator=integer(1))
    size_bytes: int = field(validator=integer(0))
    files_sha256: str = field(validator=sha256_hex)

    def format(self) -> bytes:
        """Return the content of the manifest's file, with its own checksum."""
        body: dict[str, JsonValue] = {
            "format": FORMAT,
            "version": VERSION,
            "created_at": self.created_at.isoformat(),
            "created_by": self.created_by,
            "database": asdict(self.database),
            "files": self.files,
            "size_bytes": self.size_bytes,
            "files_sha256": self.files_sha256,
        }
        return canonical_json(body | {"sha256": _hash(body)}) + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> "BackupManifest":
        """Parse a manifest; raise if a byte of it was changed."""
        found = JsonObject.from_value(
            parse_json(content, field="manifest", bytes_max=MANIFEST_BYTES_MAX), "manifest"
        )
        if found.fields.get("format") != FORMAT:
            raise found.build_error("format", f"must be {FORMAT}")
        found.check_version(VERSION, remedy=_NEWER)
        body = {name: value for name, value in found.fields.items() if name != "sha256"}
        if found.get("sha256", str) != _hash(body):
            raise found.build_error("sha256", "is not the checksum of the manifest")
        database = JsonObject.from_value(found.fields.get("database"), "manifest.database")
        return cls(
            created_at=found.get_datetime("created_at"),
            created_by=found.get("created_by", str),
            database=DatabaseFacts(
                schema_revision=database.get("schema_revision", str),
                server_version=database.get("server_version", str),
                tiles=database.get("tiles", int),
                audit_sequence=database.get("audit_sequence", int),
                audit_hash=database.get("audit_hash", str),
            ),
            files=found.get("files", int),
            size_bytes=found.get("size_bytes", int),
            files_sha256=found.get("files_sha256", str),
        )


def _hash(body: dict[str, JsonValue]) -> str:
    return sha256(canonical_json(body)).hexdigest()
