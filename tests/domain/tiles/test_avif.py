"""The structure of AVIF images, made by hand: what real encoders do not write."""

import pytest

from tileferry.domain.tiles import PictureError, inspect_picture
from tileferry.domain.tiles.picture import PictureFlaw


def box(name: bytes, content: bytes = b"", size: int | None = None) -> bytes:
    return (8 + len(content) if size is None else size).to_bytes(4) + name + content


FTYP = box(b"ftyp", b"avif\0\0\0\0")
ISPE = box(b"ispe", bytes(4) + (64).to_bytes(4) + (32).to_bytes(4))
IPRP = box(b"iprp", box(b"ipco", ISPE))
PIXELS = b"the pixels"


def locate(
    offset: int, version: int = 0, method: int = 0, *, items: int = 1, extents: int = 1
) -> bytes:
    """Return the table of items, with one item at an offset."""
    number = (4 if version == 2 else 2) * b"\0"
    entry = number + (method.to_bytes(2) if version else b"") + b"\0\0" + extents.to_bytes(2)
    entry += offset.to_bytes(4) + len(PIXELS).to_bytes(4)
    count = items.to_bytes(len(number))
    return box(b"iloc", bytes([version, 0, 0, 0]) + b"\x44\x00" + count + entry)


def make_avif(table: bytes = b"", *parts: bytes, data: bytes | None = None) -> bytes:
    """Return an image with a table of items, other parts of the header, and image data."""
    meta = box(b"meta", bytes(4) + (table or locate(9)) + b"".join(parts or (IPRP,)))
    return FTYP + meta + (box(b"mdat", PIXELS) if data is None else data)


def make_whole(version: int = 0, data: bytes | None = None) -> bytes:
    draft = make_avif(locate(0, version), data=data)
    return make_avif(locate(len(draft) - len(PIXELS), version), data=data)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    "data",
    [
        None,
        box(b"mdat", PIXELS, size=0),
        box(b"mdat", (16 + len(PIXELS)).to_bytes(8) + PIXELS, size=1),
    ],
)
def test_whole_image_is_accepted_and_every_truncation_is_not(
    version: int, data: bytes | None
) -> None:
    content = make_whole(version, data)
    found = inspect_picture(content)
    assert (found.kind, found.width_px, found.height_px) == ("avif", 64, 32)
    for end in range(len(content)):
        with pytest.raises(PictureError) as cut:
            inspect_picture(content[:end])
        assert cut.value.flaw is PictureFlaw.CUT, end
    with pytest.raises(PictureError, match="has data after the end"):
        inspect_picture(content + b"<html>")
    with pytest.raises(PictureError, match="has data after the end"):
        inspect_picture(content + box(b"uuid"))


def test_data_inside_of_the_header_is_not_searched_for_in_the_file() -> None:
    content = make_avif(locate(10**6, 1, method=1))
    assert inspect_picture(content).kind == "avif"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (make_avif(locate(0, 3)), "unknown form"),
        (make_avif(locate(0).replace(b"\x44\x00", b"\x77\x00")), "unknown form"),
        (make_avif(locate(0, items=2_000)), "too many items"),
        (make_avif(locate(0, extents=5_000)), "too many items"),
        (make_avif(locate(0, items=9)), "cut off|too many"),
        (make_avif(b"".join([locate(0)[:-10].replace(b"\0\0\0\x1e", b"\0\0\0\x14")])), "cut off"),
        (make_avif(locate(0), box(b"free")), "no table of items or no properties"),
        (make_avif(locate(0), box(b"iprp", box(b"free"))), "how large it is"),
        (make_avif(locate(0), box(b"iprp", box(b"ipco", box(b"free")))), "how large it is"),
        (make_avif(locate(0), IPRP, box(b"free", size=3)), "no valid length"),
        (make_avif(locate(0), IPRP, *[box(b"free")] * 1_100), "too many parts"),
    ],
)  # fmt: skip
def test_damaged_header_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(PictureError, match=problem) as refused:
        inspect_picture(content)
    assert refused.value.flaw is PictureFlaw.DAMAGED


def test_side_that_is_cut_off_is_refused() -> None:
    content = FTYP + box(b"mdat", PIXELS) + box(
        b"meta", bytes(4) + locate(20) + box(b"iprp", box(b"ipco", box(b"ispe", bytes(4))))
    )  # fmt: skip
    with pytest.raises(PictureError, match="are cut off"):
        inspect_picture(content)


def test_markup_in_the_header_is_refused() -> None:
    content = make_avif(locate(9), IPRP, box(b"free", b"<script>alert(1)</script>"))
    with pytest.raises(PictureError, match="markup or a script"):
        inspect_picture(content)
