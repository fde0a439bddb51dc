"""Where a tile's bytes are, and how to tell that they are the right ones."""

import re
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from tileferry.domain.checks import field_name, integer
from tileferry.domain.errors import InvalidValueError

if TYPE_CHECKING:
    from attrs import Attribute

TILE_BYTES_MAX = 64 * 1024 * 1024
"""No tile is larger: what claims to be is refused before it is read."""
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


def _sha256(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    if not (isinstance(value, str) and _SHA256.fullmatch(value)):
        raise InvalidValueError(
            field=field_name(instance, attribute),
            value=value,
            problem="must be 64 lower-case hex digits",
        )


@frozen(kw_only=True)
class BlobRef:
    """A tile's bytes inside the cache: which segment, where in it, how long, which digest."""

    segment: int = field(validator=integer(1))
    offset: int = field(validator=integer(0))
    length: int = field(validator=integer(0, TILE_BYTES_MAX))
    sha256: str = field(validator=_sha256)
