"""Pages of a listing that are made to use memory, as large as a page may be."""

from tileferry.domain.tiles import ListingLimits

PAGE_BYTES = ListingLimits().page_bytes_max
LINE = (
    b'{"z":14,"x":9830,"y":5544,"produced_at":"2026-10-01T12:00:00Z","resolution_m_per_px":0.6,'
    b'"estimated_bytes":20480}'
)
SHORT_LINE = (
    b'{"z":9,"x":0,"y":0,"produced_at":"20261001T00Z","resolution_m_per_px":1,"estimated_bytes":1}'
)


def repeat(head: bytes, item: bytes, tail: bytes) -> bytes:
    """Return a page that is nearly as large as it may be."""
    count = (PAGE_BYTES - len(head) - len(tail)) // len(item)
    return head + (item * count).rstrip(b",") + tail


def number_keys(head: bytes, tail: bytes) -> bytes:
    keys = b",".join(b'"%x":0' % number for number in range(350_000))
    return head + keys + tail


FACE = "\N{GRINNING FACE}".encode()
PAGES = {
    "as many tiles as fit": (repeat(b'{"tiles":[', LINE + b",", b"]}"), " tiles"),
    "short tiles": (repeat(b'{"tiles":[', SHORT_LINE + b",", b"]}"), " tiles"),
    "tiles with a field more": (
        repeat(b'{"tiles":[', LINE[:-1] + b',"cloud":"\\u00e9"},', b"]}"),
        " tiles",
    ),
    "lists": (repeat(b'{"tiles":[],"more":[', b"[],", b"]}"), "in field listing"),
    "objects": (repeat(b'{"tiles":[],"more":[', b'{"a":{}},', b"]}"), "in field listing"),
    "tiles without fields": (repeat(b'{"tiles":[', b"{},", b"]}"), "in field listing.tiles[0]"),
    "keys": (number_keys(b'{"tiles":[],', b"}"), "in field listing"),
    "keys of a tile": (number_keys(b'{"tiles":[{', b"}]}"), "in field listing.tiles[0]"),
    "numbers": (repeat(b'{"tiles":[],"more":[', b"1.5,", b"]}"), "in field listing"),
    "texts": (repeat(b'{"tiles":[],"more":[', b'"\\u4e00",', b"]}"), "in field listing"),
    "one wide text": (repeat(b'{"tiles":[],"more":"', FACE, b'"}'), "in field listing"),
    "wide cursor": (repeat(b'{"tiles":[],"next":"' + FACE, b"x", b'"}'), "listing"),
    "only text": (repeat(b'"', FACE, b'"'), "in field listing"),
    "depth": (repeat(b'{"tiles":', b"[", b""), "in field listing.tiles[0]"),
    "repeated key": (repeat(b'{"tiles":[]', b',"tiles":[]', b"}"), "in field listing"),
    "not JSON": (b"<" * PAGE_BYTES, "in field listing"),
}
