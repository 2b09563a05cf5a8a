"""Every key there is for a provider, where it comes from, and which would be used next."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from hermes.models.auth_file import Cooldown, Credential, fingerprint
from hermes.models.key_ring import KeyRing, KeyStrategy


class KeyStatus(Struct, frozen=True, kw_only=True):
    """`source` is a variable's name, `config.yaml`, or `auth.json`; the rest is in seconds."""

    key: str
    source: str
    id: str = ""
    label: str = ""
    kind: str = "api_key"
    rests: float = 0.0
    why: str = ""
    expires: float | None = None


class NextKey(Struct, frozen=True):
    """The key that would be used, by its place, and why that one."""

    place: int
    why: str


def key_statuses(
    told: Sequence[tuple[str, str]],
    pool: Sequence[Credential],
    rests: Mapping[str, Cooldown],
    now: float,
) -> list[KeyStatus]:
    """`told` are keys with their sources, from the environment and settings; they come first."""
    held: dict[str, KeyStatus] = {}
    for key, source in told:
        rest = rests.get(fingerprint(key), Cooldown(0.0))
        left = max(rest.until - now, 0.0)
        held.setdefault(
            key, KeyStatus(key=key, source=source, rests=left, why=rest.why if left else "")
        )
    for one in pool:
        rest = rests.get(fingerprint(one.access_token), Cooldown(0.0))
        left = max(rest.until - now, 0.0)
        found = KeyStatus(
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


def next_key(held: Sequence[KeyStatus], strategy: KeyStrategy) -> NextKey | None:
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
        return NextKey(place, "it is the only one")
    if not ready:
        return NextKey(place, "all rest, and it is ready soonest")
    if len(ready) == 1:
        return NextKey(place, "all others rest")
    if strategy is KeyStrategy.RANDOM:
        return NextKey(place, f"one of {len(ready)} by chance")
    return NextKey(place, f"it is the first that does not rest ({strategy})")
