"""Zoom levels as operators write them: ``15,16``, ``14-16``, or both."""

import re

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles.tile_id import normalised_zooms
from tileferry.entrypoints.cli.output import option

_PART = re.compile(r" *(\d{1,2})(?: *- *(\d{1,2}))? *", re.ASCII)


def zooms_of(text: str) -> tuple[int, ...]:
    """Read zoom levels, in ascending order, each once."""
    levels: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None or int(match[1]) > int(match[2] or match[1]):
            raise InvalidValueError(
                field="--zoom",
                value=text,
                problem="is not a list of zoom levels",
                remedy="give levels such as 15,16 or from-to such as 14-16",
            )
        levels += range(int(match[1]), int(match[2] or match[1]) + 1)
    with option("--zoom"):
        return normalised_zooms(levels)
