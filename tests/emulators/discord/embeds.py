"""The documented limits of embeds."""

from collections.abc import Iterator, Sequence

from emulators.discord.state import Json

MAX_EMBEDS = 10
MAX_FIELDS = 25
MAX_TOTAL = 6000
_LIMITS = {
    "title": 256, "description": 4096, "footer.text": 2048, "author.name": 256,
    "fields.name": 256, "fields.value": 1024,
}  # fmt: skip


def wrong_field(embeds: Sequence[Json]) -> str:
    """The name of a field that breaks a limit; empty if there is none."""
    if len(embeds) > MAX_EMBEDS:
        return "embeds"
    total = 0
    for one in embeds:
        fields = one.get("fields")
        if isinstance(fields, list) and len(fields) > MAX_FIELDS:  # pyright: ignore[reportUnknownArgumentType]
            return "embeds.fields"
        for name, text in _texts(one):
            total += len(text)
            if len(text) > _LIMITS[name]:
                return f"embeds.{name}"
    return "embeds" if total > MAX_TOTAL else ""


def _texts(embed: Json) -> Iterator[tuple[str, str]]:
    for name in _LIMITS:
        outer, _, inner = name.partition(".")
        value = embed.get(outer)
        entries = value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]
        for entry in entries:  # pyright: ignore[reportUnknownVariableType]
            text = entry.get(inner) if isinstance(entry, dict) else entry  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            yield name, str(text or "")  # pyright: ignore[reportUnknownArgumentType]
