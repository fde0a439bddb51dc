"""Scripts, styles and pictures: read once, compressed once, and named by their content."""

import gzip
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from attrs import define, field, frozen

PREFIX = "/static/"
_NAMED = "max-age=31536000, immutable"
_COMPRESSED = ("text/", "image/svg", "application/json")
_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "png": "image/png"}


@frozen(kw_only=True)
class Asset:
    """A file as it is sent."""

    content: bytes = field(repr=False)
    compressed: bytes | None = field(repr=False)
    content_type: str
    etag: str


@define
class Assets:
    """The files of our own folder and of the Leaflet package, by their path."""

    _assets: Mapping[str, Asset] = field(init=False)
    _version: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._assets = {name: _read_asset(name, file) for name, file in _iter_files()}
        digest = sha256()
        for name in sorted(self._assets):
            digest.update(self._assets[name].etag.encode())
        self._version = digest.hexdigest()[:12]

    def get_url(self, name: str) -> str:
        """Return the address of a file; it changes when any file changes.

        All files share one version, so relative addresses in style sheets and scripts stay valid.
        """
        if name not in self._assets:
            raise KeyError(name)
        return f"{PREFIX}{self._version}/{name}"

    def read(self, name: str) -> bytes:
        return self._assets[name].content

    def find(self, path: str) -> tuple[Asset, str] | None:
        """Return the file of an address, and how long it may be cached."""
        version, _, name = path.removeprefix(PREFIX).partition("/")
        asset = self._assets.get(name)
        if asset is None:
            return None
        return asset, _NAMED if version == self._version else "no-cache"


def _iter_files() -> Iterator[tuple[str, Traversable]]:
    own = files("tileferry.entrypoints.web") / "static"
    leaflet = files("xstatic.pkg.leaflet") / "data"
    yield from ((file.name, file) for file in own.iterdir() if file.is_file())
    for name in ("leaflet.js", "leaflet.css"):
        yield f"leaflet/{name}", leaflet / name
    for file in (leaflet / "images").iterdir():
        yield f"leaflet/images/{file.name}", file


def _read_asset(name: str, file: Traversable) -> Asset:
    content = file.read_bytes()
    ending = name.rpartition(".")[2]
    kind = _TYPES[ending]
    compressed = gzip.compress(content, 9, mtime=0) if kind.startswith(_COMPRESSED) else None
    return Asset(
        content=content,
        compressed=compressed,
        content_type=f"{kind}; charset=utf-8" if kind.startswith("text/") else kind,
        etag=f'"{sha256(content).hexdigest()[:32]}"',
    )
