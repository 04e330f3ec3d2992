import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoyline.offloader.dimensions import dimensions, pages


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\x06\0\0\0" + bytes(4)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0;"


def jpeg(width: int, height: int, *before: bytes) -> bytes:
    segments = b"".join(b"\xff\xe1" + struct.pack(">H", len(part) + 2) + part for part in before)
    return b"\xff\xd8" + segments + b"\xff\xc0\0\x11\x08" + struct.pack(">HH", height, width) + b"\x03"


def webp(kind: bytes, body: bytes) -> bytes:
    return b"RIFF\0\0\0\0WEBP" + kind + bytes(4) + body


def pdf(objects: int, count: int, *, more: bytes = b"") -> bytes:
    kids = b"<< /Type /Page /Parent 1 0 R >>\n" * objects
    return b"%%PDF-1.7\n<< /Type /Pages /Count %d >>\n" % count + kids + more


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (png(800, 600), (800, 600)),
        (gif(7, 9), (7, 9)),
        (jpeg(640, 480), (640, 480)),
        (jpeg(640, 480, bytes(65_000), bytes(65_000), b"\xff\xc0" * 9), (640, 480)),
        (b"\xff\xd8\xff\xff\xff\xd0\xff\xc2\0\x11\x08\0\x05\0\x06", (6, 5)),
        (webp(b"VP8X", bytes(4) + (99).to_bytes(3, "little") + (49).to_bytes(3, "little")), (100, 50)),
        (webp(b"VP8L", b"\x2f" + (99 | 49 << 14).to_bytes(4, "little") + bytes(5)), (100, 50)),
        (webp(b"VP8 ", bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", 100, 50)), (100, 50)),
    ],
)
def test_the_size_of_a_picture_stands_in_its_header(content: bytes, expected: tuple[int, int]) -> None:
    assert dimensions(content) == expected


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GIF89a",
        b"\xff\xd8",
        png(0, 600),
        png(800, 600)[:22],
        gif(0, 0),
        jpeg(0, 480),
        jpeg(640, 480)[:9],
        b"\xff\xd8" + b"\xff" * 100_000,
        b"\xff\xd8" + b"\xff\xe1\0\0" * 100_000,
        b"\xff\xd8" + b"\xff\xd0" * 3_000_000,
        b"\xff\xd8\xff\xe1\xff\xff",
        webp(b"VP8X", bytes(9)),
        webp(b"VP8Z", bytes(10)),
        webp(b"VP8 ", bytes(10)),
        webp(b"VP8L", bytes(10)),
        b"<svg width='8' height='6'/>",
    ],
)
def test_a_header_that_is_cut_off_or_hostile_has_no_size(content: bytes) -> None:
    assert dimensions(content) is None


@given(
    st.sampled_from(
        [b"", b"\xff\xd8", b"\xff\xd8\xff\xe1", b"RIFF0000WEBPVP8X", b"GIF87a", b"\x89PNG\r\n\x1a\n0000IHDR"]
    ),
    st.binary(max_size=60),
)
def test_no_bytes_at_all_are_refused(head: bytes, rest: bytes) -> None:
    found = dimensions(head + rest)
    assert found is None or min(found) > 0
    assert pages(head + rest) is None


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (pdf(3, 3), 3),
        (pdf(1, 1, more=b"<< /Type/Pages/Count 1 >>"), 1),
        (pdf(3, 2), None),
        (pdf(0, 4), None),
        (b"%PDF-1.7\n" + zlib.compress(pdf(3, 3)), None),
        (pdf(3, 3)[1:], None),
        (b"%PDF-1.7 /Count " + b"9" * 5_000_000, None),
        (b"%PDF-1.7" + b"/Type" + b" " * 5_000_000, None),
        (pdf(3, 3, more=bytes(1 << 23)), None),
        (b"", None),
    ],
)
def test_pages_are_told_only_where_they_are_plain_to_see(content: bytes, expected: int | None) -> None:
    assert pages(content) == expected
