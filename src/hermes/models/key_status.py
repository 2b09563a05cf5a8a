"""List every key of a provider with its source and state, and which is used next."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from hermes.models.auth_file import Cooldown, Credential, fingerprint
from hermes.models.key_ring import KeyRing, KeyStrategy


class KeyStatus(Struct, frozen=True, kw_only=True):
    """`source` is a variable's name, `config.yaml` or `auth.json`; `cooldown` is in seconds."""

    key: str
    source: str
    id: str = ""
    label: str = ""
    kind: str = "api_key"
    cooldown: float = 0.0
    reason: str = ""
    expires: float | None = None


class NextKey(Struct, frozen=True):
    """The index of the key that would be used next, and the reason."""

    index: int
    reason: str


def key_statuses(
    configured: Sequence[tuple[str, str]],
    pool: Sequence[Credential],
    cooldowns: Mapping[str, Cooldown],
    now: float,
) -> list[KeyStatus]:
    """Merge configured keys, which come first, with those of the pool."""
    found: dict[str, KeyStatus] = {}
    for key, source in configured:
        rest = cooldowns.get(fingerprint(key), Cooldown(0.0))
        left = max(rest.until - now, 0.0)
        found.setdefault(
            key, KeyStatus(key=key, source=source, cooldown=left, reason=rest.why if left else "")
        )
    for one in pool:
        rest = cooldowns.get(fingerprint(one.access_token), Cooldown(0.0))
        left = max(rest.until - now, 0.0)
        status = KeyStatus(
            key=one.access_token,
            source="auth.json",
            id=one.id,
            label=one.label,
            kind=one.auth_type,
            cooldown=left,
            reason=rest.why if left else "",
            expires=one.expires,
        )
        found.setdefault(one.access_token, status)
    return list(found.values())


def next_key(keys: Sequence[KeyStatus], strategy: KeyStrategy) -> NextKey | None:
    """Return the key that a process started now would use."""
    if not keys:
        return None
    ring = KeyRing([one.key for one in keys], strategy)
    for one in keys:
        if one.cooldown:
            ring.cool_until(one.key, one.cooldown)
    index = [one.key for one in keys].index(ring.next_key(0.0))
    ready = [one for one in keys if not one.cooldown]
    if len(keys) == 1:
        return NextKey(index, "the only key")
    if not ready:
        return NextKey(index, "all keys are on cooldown; this one is ready soonest")
    if len(ready) == 1:
        return NextKey(index, "all other keys are on cooldown")
    if strategy is KeyStrategy.RANDOM:
        return NextKey(index, f"one of {len(ready)}, at random")
    return NextKey(index, f"the first key that is ready ({strategy})")
