"""Which cache a database is for: its rows say where in the files of one cache a tile is."""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import NewType

from attrs import field, frozen

from tileferry.domain.validation import text

CacheId = NewType("CacheId", str)
_CACHE_ID = re.compile(r"[0-9a-f]{32}")


def parse_cache_id(written: str) -> CacheId | None:
    """Read the id of a cache; ``None`` for what is none."""
    return CacheId(written) if _CACHE_ID.fullmatch(written) else None


@frozen(kw_only=True)
class CacheBinding:
    """The one cache that a database's rows are about."""

    cache_id: CacheId
    place: str = field(validator=text)
    """Where it was last, for people; a cache that moves stays the same."""


class CacheFit(StrEnum):
    """Whether a cache and a database belong together."""

    BOUND = "bound"
    FREE = "free"
    """Not yet, and nothing is against it."""
    FOREIGN = "foreign"
    """The database's rows are about another cache."""


def check_cache_fit(
    own: CacheId | None, bound: CacheBinding | None, *, is_empty: Callable[[], bool]
) -> CacheFit:
    """Say whether a cache with the id ``own`` fits a database that knows ``bound``.

    A database that is empty has nothing to lose; it is only asked where that matters.
    """
    if bound is None:
        return CacheFit.FREE
    if own == bound.cache_id:
        return CacheFit.BOUND
    return CacheFit.FREE if is_empty() else CacheFit.FOREIGN
