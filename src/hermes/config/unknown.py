"""Keys in a config that the program does not know, with a guess at what was meant."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from hermes.config.paths import KeyPath, format_path
from hermes.config.problems import Finding, Severity
from hermes.config.schema import Config
from hermes.config.sections.words import Open
from hermes.config.shapes import as_list, as_mapping

NO_SUCH_SETTING = "there is no such setting"

MOST_GUESSES = 20
"""To guess what was meant takes longer than all the rest of the reading."""

SURELY_A_SLIP = 0.85
"""How like a known name a key must be to be questioned where foreign keys are welcome."""


def unknown_keys(raw: Mapping[str, object], config: Config) -> list[Finding]:
    """One warning each; the keys stay in the file and in `Loaded.raw`."""
    return [
        Finding(
            severity=Severity.WARNING,
            path=path,
            message=_in_words(path, siblings) if number < MOST_GUESSES else NO_SUCH_SETTING,
            hint="It is kept but has no effect.",
        )
        for number, (path, siblings) in enumerate(_unknown(raw, config, ()))
    ]


def meant_instead(path: KeyPath, siblings: Iterable[str] = ()) -> str:
    """The known settings whose names are nearest to this one, or nothing."""
    near = _nearest(str(path[-1]), siblings, 0.7)
    if near:
        return format_path((*path[:-1], near))
    names = list(_all_keys(Config(), ()))
    elsewhere = [name for name in names if name.rpartition(".")[2] == path[-1]]
    if elsewhere and len(elsewhere) <= 3:
        return " or ".join(elsewhere)
    return _nearest(format_path(path), names, 0.75)


def _unknown(
    raw: object, value: object, path: KeyPath
) -> Iterator[tuple[KeyPath, tuple[str, ...]]]:
    given = as_mapping(raw)
    if isinstance(value, Struct) and given is not None:
        names = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
        for key, item in given.items():
            if key in names:
                yield from _unknown(item, getattr(value, names[str(key)]), (*path, str(key)))
            elif not isinstance(value, Open) or _nearest(str(key), names, SURELY_A_SLIP):
                yield (*path, str(key)), value.__struct_encode_fields__
        return
    inside = as_mapping(value)
    if inside is not None and given is not None:
        for key, item in given.items():
            yield from _unknown(item, inside.get(key), (*path, str(key)))
        return
    entries, items = as_list(raw), as_list(value)
    if entries is not None and items is not None and len(entries) == len(items):
        for index, (entry, item) in enumerate(zip(entries, items, strict=True)):
            yield from _unknown(entry, item, (*path, index))


def _nearest(name: str, names: Iterable[str], cutoff: float) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only mistakes pay for it

    return next(iter(get_close_matches(name, list(names), n=1, cutoff=cutoff)), "")


def _in_words(path: KeyPath, siblings: Iterable[str]) -> str:
    meant = meant_instead(path, siblings)
    return f"there is no such setting; did you mean {meant}?" if meant else NO_SUCH_SETTING


def _all_keys(value: Struct, path: KeyPath) -> Iterator[str]:
    for name, encoded in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        yield format_path((*path, encoded))
        inside = getattr(value, name)
        if isinstance(inside, Struct):
            yield from _all_keys(inside, (*path, encoded))
