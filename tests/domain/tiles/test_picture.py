"""Whole pictures are recognised by their structure, and nothing else is."""

import io
import re
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from support.pictures import build_png, make_picture

from tileferry.domain.tiles import TILE_BYTES_MAX, PictureError, detect_image_kind, inspect_picture
from tileferry.domain.tiles.picture import PARTS_MAX, SIDE_PX_MAX, PictureFlaw


def draw(kind: str, size: tuple[int, int] = (17, 9), **options: Any) -> bytes:
    image = Image.effect_noise(size, 90).convert("RGBA" if options.pop("alpha", False) else "RGB")
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


IHDR = (b"IHDR", b"\0\0\0\1\0\0\0\1\x08\0\0\0\0")
IDAT = (b"IDAT", zlib.compress(b"\0\0"))
IEND = (b"IEND", b"")
EXIF = Image.Exif()
EXIF[0x010E] = "a field"
PICTURES = {
    "png": draw("PNG"),
    "png with transparency": draw("PNG", alpha=True),
    "png in blocks": build_png(IHDR, *[(b"IDAT", b"block")] * 9, IEND),
    "tiny png": make_picture("a comment"),
    "jpg": draw("JPEG", quality=95),
    "progressive jpg": draw("JPEG", (64, 64), progressive=True),
    "jpg with restart markers": draw("JPEG", (64, 64), restart_marker_blocks=1),
    "jpg with metadata": draw("JPEG", exif=EXIF, comment=b"mind the gap: 3 < 4"),
    "webp": draw("WEBP"),
    "lossless webp": draw("WEBP", lossless=True),
    "webp with transparency": draw("WEBP", alpha=True, exif=EXIF),
    "avif": draw("AVIF"),
    "avif with transparency": draw("AVIF", alpha=True, exif=EXIF),
}
AVIF_HEAD = b"\0\0\0\x10ftypavif\0\0\0\0"
KINDS = {name: re.findall("png|jpg|webp|avif", name)[0] for name in PICTURES}
ANY = st.sampled_from(sorted(PICTURES))


def get_error(content: bytes) -> PictureError:
    with pytest.raises(PictureError) as failure:
        inspect_picture(content)
    return failure.value


@pytest.mark.parametrize("name", PICTURES)
def test_whole_picture_is_accepted(name: str) -> None:
    content = PICTURES[name]
    found = inspect_picture(content)
    assert found.kind == KINDS[name] == detect_image_kind(content)
    assert (found.width_px, found.height_px) == Image.open(io.BytesIO(content)).size


@pytest.mark.parametrize("name", PICTURES)
def test_invariant_42_every_truncation_is_recognised(name: str) -> None:
    content = PICTURES[name]
    for end in range(len(content)):
        assert get_error(content[:end]).flaw is PictureFlaw.CUT, end


def test_jpeg_that_ends_with_padding_is_cut() -> None:
    assert get_error(jpeg(FRAME, SCAN, end=b"\xff\xff\xff")).flaw is PictureFlaw.CUT
    assert get_error(jpeg(FRAME, end=b"\xff\xff\xff")).flaw is PictureFlaw.CUT


@given(ANY, st.binary(min_size=1, max_size=40))
def test_data_after_the_end_is_refused(name: str, more: bytes) -> None:
    error = get_error(PICTURES[name] + more)
    assert error.problem == "has data after the end of the image"
    assert error.flaw is PictureFlaw.UNFIT


@given(st.data())
def test_flipped_byte_of_a_png_is_refused(data: st.DataObject) -> None:
    content = PICTURES["png"]
    at = data.draw(st.integers(0, len(content) - 1))
    get_error(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])


@given(ANY, st.data())
def test_changed_bytes_raise_nothing_but_picture_errors(name: str, data: st.DataObject) -> None:
    content = bytearray(PICTURES[name])
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=8)):
        content[at] = data.draw(st.integers(0, 255))
    try:
        inspect_picture(bytes(content))
    except PictureError as error:
        assert str(error)  # noqa: PT017  # a change may go unnoticed


@given(
    st.sampled_from(
        [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF\x20\0\0\0WEBPVP8 ", AVIF_HEAD]
    ),
    st.binary(max_size=200),
)
def test_arbitrary_bytes_raise_nothing_but_picture_errors(head: bytes, rest: bytes) -> None:
    get_error(head + rest)


@pytest.mark.parametrize(
    "content",
    [
        b"<html><body>quota exceeded</body></html>",
        b"<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'/>",
        b"GIF89a/*\1\0\0\0\0\0*/=1;alert(1)//;",
        b"%PDF-1.7",
        b'{"error": "quota"}',
        b"\0" * 64,
    ],
    ids=["html", "svg", "gif and script", "pdf", "json", "zeros"],
)
def test_other_content_is_not_a_tile(content: bytes) -> None:
    error = get_error(content)
    assert "is not a PNG, JPEG, WebP or AVIF image" in str(error)
    assert error.flaw is PictureFlaw.UNFIT


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"WEBP" + b"".join(
        name + len(data).to_bytes(4, "little") + data + b"\0" * (len(data) % 2)
        for name, data in chunks
    )
    return b"RIFF" + len(body).to_bytes(4, "little") + body


def jpeg(*segments: tuple[int, bytes], end: bytes = b"\xff\xd9") -> bytes:
    return (
        b"\xff\xd8"
        + b"".join(
            bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2) + body for marker, body in segments
        )
        + end
    )


FRAME = (0xC0, b"\x08\0\x10\0\x20\1\1\x11\0")
SCAN = (0xDA, b"\1\1\0\0\x3f\0pixels\xff\0\xff\xd0more")
SCRIPT = b"<ScRiPt>alert(1)</script>"
LOSSY = b"\0\0\0\x9d\x01\x2a\x10\0\x10\0"


def test_smallest_pictures_are_accepted() -> None:
    for content in (
        jpeg(FRAME, SCAN),
        jpeg(FRAME, SCAN, end=b"\xff\xff\xff\xd9"),  # padded, as is allowed
        riff((b"VP8 ", LOSSY)),
        riff((b"VP8L", b"\x2f\0\0\0\0")),
    ):
        inspect_picture(content)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\x89PNG\r\n\x1a\n" + SCRIPT * 4, "has one header"),
        (build_png((b"IHDR", bytes(12)), IDAT, IEND), "has one header"),
        (build_png(IHDR, IHDR, IDAT, IEND), "has one header"),
        (build_png(IHDR, (b"<a>.", b""), IDAT, IEND), "no valid name"),
        (build_png(IHDR, IEND), "has no pixels"),
        (build_png(IHDR, IDAT, (b"IEND", b"1")), "has no pixels"),
        (build_png(IHDR, (b"tEXt", SCRIPT), IDAT, IEND), "markup or a script"),
        (build_png(IHDR, (b"iTXt", b"<!DOCTYPE html>"), IDAT, IEND), "markup or a script"),
        (jpeg(), "has no pixels"),
        (jpeg(FRAME), "has no pixels"),
        (jpeg(SCAN), "has no pixels"),
        (jpeg(FRAME, FRAME, SCAN), "two frames"),
        (jpeg((0xC0, b"short"), SCAN), "too short"),
        (b"\xff\xd8\xff\xe0\0\1" + bytes(9), "too short"),
        (jpeg(FRAME, end=b"nothing"), "lacks a marker"),
        (jpeg(FRAME, end=b"\xff\xff\0\0"), "lacks a marker"),
        (jpeg(FRAME, end=b"\xff\xd8\xff\xd9"), "misplaced marker"),
        (jpeg((0xFE, SCRIPT), FRAME, SCAN), "markup or a script"),
        (jpeg((0xE1, b"<svg onload=alert(1)>"), FRAME, SCAN), "markup or a script"),
        (jpeg((0xE0, b"=1;".ljust(0x2F2A - 2)), (0xFE, b"*/=alert(1)/*"), FRAME, SCAN), "a script"),
        (riff((b"VP8 ", b"")), "no valid header"),
        (riff((b"VP8 ", b"\1" + LOSSY[1:])), "no valid header"),
        (riff((b"VP8L", b"\0")), "no valid header"),
        (riff((b"ALPH", b""), (b"VP8 ", LOSSY)), "no valid header"),
        (riff((b"VP8X", bytes(10))), "has no pixels"),
        (riff((b"VP8 ", LOSSY), (b"XMP ", b"<?php echo 1")), "markup or a script"),
        (b"RIFF\x0a\0\0\0WEBPVP8 \xff\xff", "cut off"),
        (b"RIFF\x0c\0\0\0WEBPVP8 \xff\xff\xff\0", "cut off"),
    ],
)
def test_damaged_or_active_picture_is_refused(content: bytes, problem: str) -> None:
    error = get_error(content)
    assert problem in error.problem
    damaged = error.problem.startswith("is damaged")
    assert error.flaw is (PictureFlaw.DAMAGED if damaged else PictureFlaw.UNFIT)


@pytest.mark.parametrize(
    "side", [(0, 1), (1, 0), (SIDE_PX_MAX + 1, 1), (1, SIDE_PX_MAX + 1), (2**31, 2**31)]
)
def test_sides_unfit_for_a_tile_are_refused(side: tuple[int, int]) -> None:
    width, height = side
    header = width.to_bytes(4) + height.to_bytes(4) + IHDR[1][8:]
    assert "has sides outside" in str(get_error(build_png((b"IHDR", header), IDAT, IEND)))


def test_picture_with_too_many_parts_or_bytes_is_refused() -> None:
    comments = [(b"tEXt", b"")] * PARTS_MAX
    assert "65536 parts" in str(get_error(build_png(IHDR, *comments, IDAT, IEND)))
    assert "is too large" in str(get_error(b"\x89PNG\r\n\x1a\n" + bytes(TILE_BYTES_MAX)))


def test_largest_sides_are_accepted() -> None:
    canvas = b"\0\0\0\0" + (SIDE_PX_MAX - 1).to_bytes(3, "little") * 2
    found = inspect_picture(riff((b"VP8X", canvas), (b"VP8 ", LOSSY)))
    assert (found.width_px, found.height_px) == (SIDE_PX_MAX, SIDE_PX_MAX)
