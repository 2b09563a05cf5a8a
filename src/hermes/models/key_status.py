"""List every key of a provider with its source and state, and which is used next."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from hermes.models.auth_file import Cooldown, Credential, fingerprint
from hermes.models.key_ring import KeyRing, KeyStrategy


class KeyStatus(Struct, frozen=True, kw_only=True):
    """`source` is a variable's name, `config.yaml` or `auth.json`; `rests` is in seconds."""

    key: str
    source: str
    id: str = ""
    label: str = ""
    kind: str = "api_key"
    rests: float = 0.0
    why: str = ""
    expires: float | None = None


class NextKey(Struct, frozen=True):
    """The index of the key that would be used next, and the reason."""

    place: int
    why: str


def key_statuses(
    told: Sequence[tuple[str, str]],
    pool: Sequence[Credential],
    rests: Mapping[str, Cooldown],
    now: float,
) -> list[KeyStatus]:
    """Merge configured keys, which come first, with those of the pool."""
    found: dict[str, KeyStatus] = {}
    for key, source in told:
        rest = rests.get(fingerprint(key), Cooldown(0.0))
        left = max(rest.until - now, 0.0)
        found.setdefault(
            key, KeyStatus(key=key, source=source, rests=left, why=rest.why if left else "")
        )
    for one in pool:
        rest = rests.get(fingerprint(one.access_token), Cooldown(0.0))
        left = max(rest.until - now, 0.0)
        status = KeyStatus(
            key=one.access_token,
            source="auth.json",
            id=one.id,
            label=one.label,
            kind=one.auth_type,
            rests=left,
            why=rest.why if left else "",
            expires=one.expires,
        )
        found.setdefault(one.access_token, status)
    return list(found.values())


def next_key(held: Sequence[KeyStatus], strategy: KeyStrategy) -> NextKey | None:
    """Return the key that a process started now would use."""
    if not held:
        return None
    ring = KeyRing([one.key for one in held], strategy)
    for one in held:
        if one.rests:
            ring.rest(one.key, one.rests)
    index = [one.key for one in held].index(ring.take(0.0))
    ready = [one for one in held if not one.rests]
    if len(held) == 1:
        return NextKey(index, "the only key")
    if not ready:
        return NextKey(index, "all keys are on cooldown; this one is ready soonest")
    if len(ready) == 1:
        return NextKey(index, "all other keys are on cooldown")
    if strategy is KeyStrategy.RANDOM:
        return NextKey(index, f"one of {len(ready)}, at random")
    return NextKey(index, f"the first key that is ready ({strategy})")
