"""What goes on, told while it does: one kind of event after the other."""

from typing import Protocol

from attrs import frozen

from tileferry.application.ports.downloads import TileFate
from tileferry.domain.tiles import DownloadBatchReport, PerTileStatus, UploadBatchReport


@frozen(kw_only=True)
class Listing:
    """An area's listing grows."""

    tiles: int


@frozen(kw_only=True)
class DownloadBegun:
    """The area is listed: so much is to be done."""

    tiles: int
    already_stored: int
    estimated_bytes: int


@frozen(kw_only=True)
class TileSettled:
    """There is an answer for one more tile."""

    fate: TileFate
    size_bytes: int


@frozen(kw_only=True)
class TilesDurable:
    """So many tiles of this download outlive a loss of power by now."""

    tiles: int


@frozen(kw_only=True)
class DownloadEnded:
    """A download came to an end, good or bad."""

    report: DownloadBatchReport


@frozen(kw_only=True)
class BatchAnswered:
    """The provider has answered a batch of an upload, and that is recorded."""

    answers: tuple[PerTileStatus, ...]
    size_bytes: int


@frozen(kw_only=True)
class UploadEnded:
    """An upload came to its end."""

    report: UploadBatchReport


@frozen(kw_only=True)
class Waiting:
    """Something failed and is tried again, after a while."""

    operation: str
    reason: str
    attempt: int
    max_attempts: int
    delay_s: float


ProgressEvent = (
    Listing
    | DownloadBegun
    | TileSettled
    | TilesDurable
    | DownloadEnded
    | BatchAnswered
    | UploadEnded
    | Waiting
)


class ProgressListener(Protocol):
    """Is told what goes on. It must not take long: the work waits for it.

    ``Waiting`` may come from any thread, the rest from the one that works. By raising
    ``KeyboardInterrupt`` it ends a download or an upload; what was done until then is safe.
    """

    def __call__(self, event: ProgressEvent, /) -> None:
        """Take note of an event."""
        ...
