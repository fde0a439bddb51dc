"""Filesystem adapters: segments, raw partitions, journals, archives, recorder, cache lock."""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.adapters.filesystem.atomic_files import write_file_atomically
    from tileferry.adapters.filesystem.audit_jsonl import JsonLinesAuditSink
    from tileferry.adapters.filesystem.audit_outbox import (
        FileAuditOutbox,
        find_waiting,
    )
    from tileferry.adapters.filesystem.backup_folder import FolderBackups
    from tileferry.adapters.filesystem.cache_directory import FileCacheLock, FileCacheMark
    from tileferry.adapters.filesystem.fdr import FileFdrClient
    from tileferry.adapters.filesystem.files import FileCalls
    from tileferry.adapters.filesystem.installation_files import LocalInstallationFiles
    from tileferry.adapters.filesystem.journal.store import FileJournalStore
    from tileferry.adapters.filesystem.operator_files import (
        CaptureFolderFiles,
        FlightRecordFile,
        OperatorConfirmation,
        TileImageFolder,
        read_plan_file,
    )
    from tileferry.adapters.filesystem.outbox_folder import has_outboxes
    from tileferry.adapters.filesystem.raw.sink import FileRawSink
    from tileferry.adapters.filesystem.segments.store import SegmentTileStore
    from tileferry.adapters.filesystem.spool import FileSpoolStore

__all__ = [
    "CaptureFolderFiles",
    "FileAuditOutbox",
    "FileCacheLock",
    "FileCacheMark",
    "FileCalls",
    "FileFdrClient",
    "FileJournalStore",
    "FileRawSink",
    "FileSpoolStore",
    "FlightRecordFile",
    "FolderBackups",
    "JsonLinesAuditSink",
    "LocalInstallationFiles",
    "OperatorConfirmation",
    "SegmentTileStore",
    "TileImageFolder",
    "find_waiting",
    "has_outboxes",
    "read_plan_file",
    "write_file_atomically",
]
