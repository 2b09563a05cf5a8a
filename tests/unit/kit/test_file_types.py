from hermes.kit.files import image_type
from support.cases import cases


@cases(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n....", "image/png"),
        (b"\xff\xd8\xff\xe0....", "image/jpeg"),
        (b"GIF87a....", "image/gif"),
        (b"GIF89a....", "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\x10\0\0\0WAVEfmt ", None),
        (b"GIF8 is how some letters begin", None),
        (b"\x89PNG", None),
        (b"", None),
    ],
)
def test_image_type_is_detected_by_first_bytes(data: bytes, kind: str | None):
    assert image_type(data) == kind
