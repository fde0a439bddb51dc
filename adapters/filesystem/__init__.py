"""The filesystem: segments of tiles, raw partitions, journals, the recorder, the cache's lock."""

from tileferry.adapters.filesystem.audit_lines import JsonLinesAuditSink
from tileferry.adapters.filesystem.cache_mark import FileCacheMark
from tileferry.adapters.filesystem.captures import CaptureFolderFiles
from tileferry.adapters.filesystem.fdr import FileFdrClient
from tileferry.adapters.filesystem.files import FileCalls
from tileferry.adapters.filesystem.flight_records import FlightRecordFile, OperatorsWord
from tileferry.adapters.filesystem.journal import FileJournalStore
from tileferry.adapters.filesystem.lock import FileCacheLock
from tileferry.adapters.filesystem.pictures import PictureFolder
from tileferry.adapters.filesystem.plan_files import read_plan_file
from tileferry.adapters.filesystem.raw_sink import FileRawSink
from tileferry.adapters.filesystem.segment_store import SegmentTileStore
from tileferry.adapters.filesystem.spool import FileSpoolStore
from tileferry.adapters.filesystem.whole_files import write_whole_file

__all__ = [
    "CaptureFolderFiles",
    "FileCacheLock",
    "FileCacheMark",
    "FileCalls",
    "FileFdrClient",
    "FileJournalStore",
    "FileRawSink",
    "FileSpoolStore",
    "FlightRecordFile",
    "JsonLinesAuditSink",
    "OperatorsWord",
    "PictureFolder",
    "SegmentTileStore",
    "read_plan_file",
    "write_whole_file",
]
