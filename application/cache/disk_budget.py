"""A budget for what is never evicted: only the disk's free space limits it."""

from collections.abc import Container

from attrs import field, frozen

from tileferry.application.ports.budget import DiskSpace
from tileferry.domain.checks import integer
from tileferry.domain.tiles import DiskRoom, EvictionResult, TileId


@frozen(kw_only=True)
class DiskBudget:
    """Promises what is free, but for a reserve. Promises of others are not known here."""

    disk: DiskSpace
    free_space_reserve_bytes: int = field(validator=integer(0))

    def reserve_headroom(
        self,
        estimated_bytes: int,
        *,
        keep: Container[TileId] = (),  # noqa: ARG002  # nothing is evicted
    ) -> EvictionResult:
        """Say whether a batch fits."""
        room = DiskRoom(
            free_bytes=self.disk.free_bytes(), reserve_bytes=self.free_space_reserve_bytes
        )
        return EvictionResult(
            requested_bytes=estimated_bytes, available_bytes=room.available_bytes, tight_disk=room
        )

    def release_headroom(self) -> None:
        """Do nothing: nothing was set aside."""
