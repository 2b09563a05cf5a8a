"""Merge the places where a platform's settings may be into its entry of `platforms`."""

from collections.abc import Collection, Iterator, Mapping

from hermes.config.platforms import ROOT_BLOCKS
from hermes.config.sections.messaging import DENIED, Platform, PlatformAccount
from hermes.config.values import KeyPath, as_mapping, find_value, format_path, join_lists

_FIELDS = frozenset(Platform.__struct_fields__)
_ACCOUNT_FIELDS = frozenset(PlatformAccount.__struct_fields__)
_HOME = "home_channel"
"""A table that names one chat, so its parts cannot be from different places."""


def platform_blocks(raw: Mapping[str, object]) -> Iterator[tuple[str, KeyPath, object]]:
    """The platform, place and content of each block, from the lowest to the highest precedence."""
    gateway = as_mapping(raw.get("gateway")) or {}
    places: tuple[tuple[KeyPath, object], ...] = (
        (("gateway", "platforms"), gateway.get("platforms")),
        (("platforms",), raw.get("platforms")),
        ((), {name: block for name, block in raw.items() if name in ROOT_BLOCKS}),
    )
    for place, blocks in places:
        for name, block in (as_mapping(blocks) or {}).items():
            if block is not None:
                yield str(name), (*place, str(name)), block


def merge_platform_blocks(raw: Mapping[str, object]) -> dict[str, object]:
    """Return the settings with every block merged into `platforms`.

    Keys without a value are not set. A value that should be a table is kept if it is not, so that
    it is reported.
    """
    gateway = as_mapping(raw.get("gateway")) or {}
    for blocks in (raw.get("platforms"), gateway.get("platforms")):
        if blocks is not None and as_mapping(blocks) is None:
            return {**raw, "platforms": blocks}
    merged: dict[str, object] = {}
    for name, _, block in platform_blocks(raw):
        if (entry := _as_entry(block, _FIELDS)) != {}:
            merged[name] = _merged_tables(merged.get(name, {}), entry)
    platforms = as_mapping(raw.get("platforms")) or {}
    entries = {**{str(name): block for name, block in platforms.items()}, **merged}
    return {**raw, "platforms": entries} if merged else dict(raw)


def written_path(raw: Mapping[str, object], merged: Mapping[str, object], path: KeyPath) -> KeyPath:
    """Where a setting of the merged `platforms` is in the file."""
    places = (path, path[1:], ("gateway", *path)) if path[0] == "platforms" else ()
    value = find_value(merged, path)
    return next((place for place in places if place and find_value(raw, place) == value), path)


def other_places(platform: str, key: str) -> list[str]:
    """Where a setting may be besides `platforms.NAME` and its `extra`.

    Code that writes it there removes it here: most of these places have precedence.
    """
    blocks = (("gateway", "platforms", platform), ("platforms", platform), (platform,))
    places = [(*block, *inside, key) for block in blocks for inside in ((), ("extra",))]
    own = (("platforms", platform, *(() if key in _FIELDS else ("extra",)), key),)
    return [format_path(place) for place in places if place not in own]


def _as_entry(block: object, fields: Collection[str]) -> object:
    """The block with the platform's own settings, those that are not in `fields`, in `extra`."""
    if (settings := as_mapping(block)) is None:
        return block
    entry = _values(settings)
    extra = entry.pop("extra", {})
    others = {key: entry.pop(key) for key in [*entry] if key not in fields}
    if (table := as_mapping(extra)) is not None:
        extra = _deep_merged(_values(table), others)
    if extra != {}:
        entry["extra"] = extra
    if (accounts := as_mapping(entry.get("accounts"))) is not None:
        entry["accounts"] = {
            str(name): _as_entry(account, _ACCOUNT_FIELDS) for name, account in accounts.items()
        }
    return entry


def _values(table: Mapping[object, object]) -> dict[object, object]:
    return {str(key): value for key, value in table.items() if value is not None}


def _merged_tables(below: object, above: object) -> object:
    under, over = as_mapping(below), as_mapping(above)
    if under is None:
        return below
    return above if over is None else _deep_merged(under, over)


def _deep_merged(
    below: Mapping[object, object], above: Mapping[object, object]
) -> dict[object, object]:
    merged = dict(below)
    for key, value in above.items():
        known = merged.get(key)
        if value is None:
            merged.setdefault(key, None)
        elif known is None:
            merged[key] = value
        elif key == DENIED:
            merged[key] = join_lists(known, value)
        elif key == "extra" or (key != _HOME and as_mapping(known) and as_mapping(value)):
            merged[key] = _merged_tables(known, value)
        else:
            merged[key] = value
    return merged
