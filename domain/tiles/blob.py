"""Where a tile's bytes are, and how to tell that they are the right ones."""

from attrs import field, frozen

from tileferry.domain.checks import check_fields, integer, sha256_hex

TILE_BYTES_MAX = 64 * 1024 * 1024
"""No tile is larger: what claims to be is refused before it is read."""


@frozen(kw_only=True)
class BlobRef:
    """A tile's bytes inside the cache: which segment, where in it, how long, which digest."""

    segment: int
    offset: int
    length: int
    sha256: str = field(validator=sha256_hex)

    def __attrs_post_init__(self) -> None:
        if not (
            type(self.segment) is type(self.offset) is type(self.length) is int
            and self.segment >= 1
            and self.offset >= 0
            and 0 <= self.length <= TILE_BYTES_MAX
        ):
            check_fields(self, _CHECKS)


_CHECKS = {"segment": integer(1), "offset": integer(0), "length": integer(0, TILE_BYTES_MAX)}
