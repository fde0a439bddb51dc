"""Downloading many tiles from a server that serves everybody: who forbids it, who must be asked."""

from attrs import frozen

from tileferry.domain.errors import NotPermittedError


@frozen(kw_only=True)
class Forbidding:
    """Hosts whose terms forbid it, whatever anybody acknowledges."""

    hosts: tuple[str, ...]
    """Each with all hosts below it; ``name.*`` is a name in every country."""
    why: str
    read: str

    def covers(self, host: str) -> bool:
        """Tell whether a host is one of these."""
        labels = host.split(".")
        owner = labels[-3:-2] if labels[-2:-1] in (["co"], ["com"]) else labels[-2:-1]
        return any(
            known[:-2] in owner
            if known.endswith(".*")
            else host == known or host.endswith(f".{known}")
            for known in self.hosts
        )


FORBIDDING = (
    Forbidding(
        hosts=("tile.openstreetmap.org", "tile.osm.org"),
        why="OpenStreetMap's tile usage policy forbids bulk downloading and offline use",
        read="https://operations.osmfoundation.org/policies/tiles/",
    ),
    Forbidding(
        hosts=("maps.wikimedia.org",),
        why="the terms of Wikimedia Maps forbid downloading areas for offline use, and services of "
        "others",
        read="https://foundation.wikimedia.org/wiki/Policy:Maps_Terms_of_Use",
    ),
    Forbidding(
        hosts=("google.*", "googleapis.com"),
        why="the terms of Google Maps forbid to fetch tiles in advance and to store them",
        read="https://cloud.google.com/maps-platform/terms",
    ),
)


def check_bulk_policy(host: str, *, host_and_port: str, acknowledged_for: str | None) -> None:
    """Refuse a host that forbids bulk downloads, or that nobody has said they may ask for many."""
    what = f"downloading in bulk from {host_and_port}"
    for known in FORBIDDING:
        if known.covers(host):
            raise NotPermittedError(
                what=what,
                problem=f"{known.why}, see {known.read}",
                remedy="use a server of your own, or one whose terms allow it",
            )
    if acknowledged_for is None or acknowledged_for.strip().lower() != host_and_port:
        said = (
            "nobody has acknowledged its policy"
            if acknowledged_for is None
            else f"xyz.bulk_download_acknowledged_for is {acknowledged_for!r}, another host"
        )
        raise NotPermittedError(
            what=what,
            problem=said,
            remedy="read that server's terms of use and its policy on bulk downloads; if they "
            f'allow you to, set xyz.bulk_download_acknowledged_for = "{host_and_port}"',
        )
