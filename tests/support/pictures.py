"""Pictures that are really ones, as small as they can be: content for tiles in tests."""

import zlib

_IHDR = b"\0\0\0\1\0\0\0\1\x08\0\0\0\0"  # one pixel, grey
_IDAT = zlib.compress(b"\0\0")


def build_png(*chunks: tuple[bytes, bytes]) -> bytes:
    """Return a PNG signature followed by these chunks, whatever they are."""
    framed = (
        len(body).to_bytes(4) + name + body + zlib.crc32(name + body).to_bytes(4)
        for name, body in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def make_picture(payload: object, size: int = 0) -> bytes:
    """Return a PNG of one pixel with a comment: other payloads are other bytes.

    ``size`` makes it that many bytes long, if it is not anyway.
    """
    text = str(payload).encode()
    picture = build_png((b"IHDR", _IHDR), (b"tEXt", text), (b"IDAT", _IDAT), (b"IEND", b""))
    missing = size - len(picture)
    return picture if missing <= 0 else make_picture(text.decode() + "." * missing)
