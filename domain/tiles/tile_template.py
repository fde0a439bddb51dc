"""The URL template of a tile server: ``…/{z}/{x}/{y}.png``."""

import re
from collections.abc import Mapping, Sequence

from attrs import field, frozen

from tileferry.domain.tiles.limits import TILE_PX
from tileferry.domain.tiles.server_url import PLACE, ServerUrl, encode_key
from tileferry.domain.tiles.tile_id import TileId

EXAMPLE = "https://tiles.example.org/{z}/{x}/{y}.png"
SUBDOMAINS = ("a", "b", "c")
RETINA_SUFFIX = "@2x"
RETINA_PX = 2 * TILE_PX
TILE_SIDES_PX = (TILE_PX, RETINA_PX)
_PLACES = ("z", "x", "y", "-y", "q", "s", "r", "api_key")
_SWITCH = re.compile(r"\{(s|[a-z]-[a-z]|[0-9]-[0-9])\}", re.ASCII)
"""A placeholder for one of several servers."""


@frozen
class TileTemplate(ServerUrl):
    """A valid template: it has every required placeholder and no unknown one."""

    setting: str = field(default="xyz.url_template", kw_only=True, eq=False, repr=False)
    subdomains: tuple[str, ...] = field(default=SUBDOMAINS, kw_only=True, repr=False)
    """The names of servers that ``{s}`` stands for."""
    tile_px: int = field(kw_only=True)
    """The side of a tile; with 512 pixels, ``{r}`` stands for ``@2x``."""
    zoom_names: Mapping[int, str] | None = field(default=None, kw_only=True, repr=False)
    """What the server calls its zoom levels, if not by their numbers."""
    servers: Sequence[Mapping[str, str]] = field(init=False, repr=False, eq=False)

    @tile_px.default
    def _find_tile_px(self) -> int:
        return RETINA_PX if RETINA_SUFFIX in self.text else TILE_PX

    @servers.default  # here, after the fields that it needs
    def _make_servers(self) -> Sequence[Mapping[str, str]]:
        return self.parse_servers()

    @property
    def example(self) -> str:
        return EXAMPLE

    def check_places(self, places: Sequence[str]) -> None:
        """Reject unknown, missing and conflicting placeholders."""
        for place in places:
            if place not in _PLACES and not _is_switch(place):
                raise self.build_error(
                    f"has an unknown placeholder, {{{place}}}",
                    f"use {', '.join(f'{{{known}}}' for known in _PLACES)} or {{a-c}}; {EXAMPLE}",
                )
        if len(set(filter(_is_switch, places))) > 1:
            raise self.build_error(
                "has two lists of servers", "use either {s} or one range such as {a-c}"
            )
        if "q" not in places:
            self._check_coordinates(places)
        elif {"z", "x", "y", "-y"} & set(places):
            raise self.build_error(
                "has {q} besides {z}, {x} or {y}", "{q}, the quadkey, replaces the other three"
            )

    def _check_coordinates(self, places: Sequence[str]) -> None:
        for wanted in ("z", "x"):
            if wanted not in places:
                raise self.build_error(f"has no {{{wanted}}} placeholder")
        if ("y" in places) == ("-y" in places):
            raise self.build_error(
                "must have either a {y} or a {-y} placeholder",
                "{y} counts rows from the north, {-y} from the south, as TMS does",
            )

    def expand(self) -> list[str]:
        """Return the template for each of its servers."""
        found = _SWITCH.search(self.text)
        if found is None:
            return [self.text]
        first, last = found[1][0], found[1][-1]
        is_range = found[1] != "s"
        choices = map(chr, range(ord(first), ord(last) + 1)) if is_range else self.subdomains
        return [self.text.replace(found[0], choice) for choice in choices]

    def build_path(self, tile: TileId, *, key: str | None = None) -> str:
        """Return a tile's path and query. Without ``key`` it has no ``{api_key}`` in it; what looks
        like another key is still there, and ``redact_likely_keys`` hides it.
        """
        return self._fill_in(self._choose_server(tile)["path"], tile, key)

    def build_url(self, tile: TileId, *, key: str | None = None) -> str:
        """Return a tile's URL. The same tile always has the same one, for caches on the way."""
        server = self._choose_server(tile)
        return server["origin"] + self._fill_in(server["path"], tile, key)

    def _fill_in(self, path: str, tile: TileId, key: str | None) -> str:
        names, zoom = self.zoom_names, tile.zoom
        values = {
            "z": zoom if names is None else names.get(zoom, zoom),
            "x": tile.x,
            "y": tile.y,
            "-y": (1 << zoom) - 1 - tile.y,
        }
        text = self.text
        if "{r}" in text:
            values["r"] = RETINA_SUFFIX if self.tile_px == RETINA_PX else ""
        if "{q}" in text:
            values["q"] = build_quadkey(tile)
        if self.has_key:
            values["api_key"] = encode_key(key)
        return PLACE.sub(lambda place: str(values[place[1]]), path)

    def _choose_server(self, tile: TileId) -> Mapping[str, str]:
        servers = self.servers
        return servers[(tile.x + tile.y) % len(servers)]


def build_quadkey(tile: TileId) -> str:
    """Return the digits that name a tile in Bing's scheme, one for each zoom level."""
    levels = range(tile.zoom - 1, -1, -1)
    return "".join(str((tile.x >> bit & 1) + 2 * (tile.y >> bit & 1)) for bit in levels)


def _is_switch(place: str) -> bool:
    return _SWITCH.fullmatch(f"{{{place}}}") is not None and place[0] <= place[-1]
