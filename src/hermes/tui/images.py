"""Images in a typed message: a pasted path becomes a chip, a chip becomes an attached file."""

import re
import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp"})
_REFERENCE = re.compile(r"(?<![\w@/])@(?:file:)?(?:\"([^\"]+)\"|([^\s\"]+))")
_PUNCTUATION = ".,;:!?)]}'"
_MAX_PATH = 4096


class MessageImages(Struct, frozen=True):
    """The text to send, where images are named by chips, and their files in order."""

    text: str
    paths: tuple[str, ...] = ()


def pasted_image(text: str) -> Path | None:
    """The image file that a pasted or dropped text names: a path, quoted or not, or an address."""
    line = text.strip()
    if not line or len(line) > _MAX_PATH or "\n" in line:
        return None
    if line.startswith("file://"):
        line = unquote(urlsplit(line).path)
    elif line[0] in "\"'" or "\\ " in line:
        try:
            (line,) = shlex.split(line)
        except ValueError:
            return None
    return _image_file(Path(line)) if Path(line).suffix.lower() in _SUFFIXES else None


class ImageChips:
    """The images of this conversation, by the chip that stands for each in a message."""

    def __init__(self) -> None:
        self._paths: dict[str, str] = {}

    def add(self, path: Path) -> str:
        """Return the chip of an image."""
        known = next((chip for chip, other in self._paths.items() if other == str(path)), "")
        chip = known or f"[image {len(self._paths) + 1}: {path.name.replace(']', '_')}]"
        self._paths[chip] = str(path)
        return chip

    def resolve(self, text: str, folder: str) -> MessageImages:
        """Find the images of a message; `@` references to images become chips."""

        def replace(found: re.Match[str]) -> str:
            # Punctuation after a name without quotes is the sentence's.
            name = found[1] or found[2].rstrip(_PUNCTUATION)
            path = Path(folder) / Path(name)
            image = _image_file(path) if path.suffix.lower() in _SUFFIXES else None
            rest = "" if found[1] else found[2][len(name) :]
            return found[0] if image is None else self.add(image) + rest

        text = _REFERENCE.sub(replace, text)
        found = [(text.index(chip), path) for chip, path in self._paths.items() if chip in text]
        return MessageImages(text, tuple(path for _, path in sorted(found)))


def _image_file(path: Path) -> Path | None:
    try:
        path = path.expanduser()
        return path.absolute() if path.is_file() else None
    except (OSError, RuntimeError, ValueError):
        return None
