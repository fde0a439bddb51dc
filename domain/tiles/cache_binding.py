"""The binding of a database to one cache. Its rows point into the files of that cache only."""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import NewType

from attrs import field, frozen

from tileferry.domain.validation import text

CacheId = NewType("CacheId", str)
_CACHE_ID = re.compile(r"[0-9a-f]{32}")


def parse_cache_id(written: str) -> CacheId | None:
    """Parse a cache id; return ``None`` if the text is not one."""
    return CacheId(written) if _CACHE_ID.fullmatch(written) else None


@frozen(kw_only=True)
class CacheBinding:
    """The cache that a database's rows point into."""

    cache_id: CacheId
    place: str = field(validator=text)
    """The last known path, for messages only. A cache that is moved keeps its id."""


class CacheFit(StrEnum):
    """Whether a cache and a database belong together."""

    BOUND = "bound"
    FREE = "free"
    """Not bound yet; the database can be bound to this cache."""
    FOREIGN = "foreign"
    """The database's rows point into another cache."""


def check_cache_fit(
    own: CacheId | None, bound: CacheBinding | None, *, is_empty: Callable[[], bool]
) -> CacheFit:
    """Return how a cache with id ``own`` fits a database bound to ``bound``.

    An empty database can be bound to another cache. ``is_empty`` is called only when the ids
    differ.
    """
    if bound is None:
        return CacheFit.FREE
    if own == bound.cache_id:
        return CacheFit.BOUND
    return CacheFit.FREE if is_empty() else CacheFit.FOREIGN
