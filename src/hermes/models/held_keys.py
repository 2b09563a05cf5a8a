"""Every key there is for a provider, where it comes from, and which would be used next."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from hermes.models.auth_file import Credential, Rest, fingerprint
from hermes.models.keys import KeyRing, Strategy


class HeldKey(Struct, frozen=True, kw_only=True):
    """`source` is a variable's name, `config.yaml`, or `auth.json`; the rest is in seconds."""

    key: str
    source: str
    id: str = ""
    label: str = ""
    kind: str = "api_key"
    rests: float = 0.0
    why: str = ""
    expires: float | None = None


class Verdict(Struct, frozen=True):
    """The key that would be used, by its place, and why that one."""

    place: int
    why: str


def held_keys(
    told: Sequence[tuple[str, str]],
    pool: Sequence[Credential],
    rests: Mapping[str, Rest],
    now: float,
) -> list[HeldKey]:
    """`told` are keys with their sources, from the environment and settings; they come first."""
    held: dict[str, HeldKey] = {}
    for key, source in told:
        rest = rests.get(fingerprint(key), Rest(0.0))
        left = max(rest.until - now, 0.0)
        held.setdefault(
            key, HeldKey(key=key, source=source, rests=left, why=rest.why if left else "")
        )
    for one in pool:
        rest = rests.get(fingerprint(one.access_token), Rest(0.0))
        left = max(rest.until - now, 0.0)
        found = HeldKey(
            key=one.access_token,
            source="auth.json",
            id=one.id,
            label=one.label,
            kind=one.auth_type,
            rests=left,
            why=rest.why if left else "",
            expires=one.expires,
        )
        held.setdefault(one.access_token, found)
    return list(held.values())


def next_of(held: Sequence[HeldKey], strategy: Strategy) -> Verdict | None:
    """What a process that starts now would do."""
    if not held:
        return None
    ring = KeyRing([one.key for one in held], strategy)
    for one in held:
        if one.rests:
            ring.rest(one.key, one.rests)
    place = [one.key for one in held].index(ring.take(0.0))
    ready = [one for one in held if not one.rests]
    if len(held) == 1:
        return Verdict(place, "it is the only one")
    if not ready:
        return Verdict(place, "all rest, and it is ready soonest")
    if len(ready) == 1:
        return Verdict(place, "all others rest")
    if strategy is Strategy.RANDOM:
        return Verdict(place, f"one of {len(ready)} by chance")
    return Verdict(place, f"it is the first that does not rest ({strategy})")
