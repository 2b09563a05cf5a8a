"""Count the segments of a text message as carriers do."""

GSM_7 = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
GSM_7_EXTENDED = frozenset("\f^{}\\[~]|€")
"""They take two places."""


def segments(text: str) -> int:
    """160 characters of GSM-7 or 70 of UCS-2 fit into one; of a longer text 153 or 67 into each."""
    if set(text) <= GSM_7 | GSM_7_EXTENDED:
        size, one, part = sum(2 if sign in GSM_7_EXTENDED else 1 for sign in text), 160, 153
    else:
        size, one, part = len(text.encode("utf-16-le")) // 2, 70, 67
    return 1 if size <= one else -(-size // part)
