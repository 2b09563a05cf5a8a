"""What a home contains that this version does not serve; the one list of it."""

from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct

from hermes.app.channels import SURFACES
from hermes.channels import MANIFESTS
from hermes.config.home import Home
from hermes.config.platforms import PLATFORMS, facts_of
from hermes.config.schema import Config
from hermes.kit.text import plural


class Unserved(Struct, frozen=True):
    """Something the owner may expect to work: in a few words, as a sentence, how to turn it off."""

    name: str
    sentence: str
    fix: str = ""


def unserved(
    home: Home, config: Config, env: Mapping[str, str], channels: Collection[str] = MANIFESTS
) -> list[Unserved]:
    """`channels` are the platforms with a channel."""
    return [*_platforms(config, env, channels), *_files(home)]


def _platforms(
    config: Config, env: Mapping[str, str], channels: Collection[str]
) -> Iterator[Unserved]:
    """Chat apps without a channel, by their settings or by a token in the environment."""
    found = {
        name: f"platforms.{name}.enabled"
        for name, settings in config.platforms.items()
        if settings.enabled and name not in channels and name not in SURFACES
    }
    for platform in PLATFORMS:
        name = platform.platform
        # A platform is configured by a secret, or by a variable that enables it.
        names = [
            f"{platform.prefix}_{suffix}"
            for suffix, _, secret in platform.variables
            if secret or suffix == "ENABLED"
        ]
        if name not in channels and (used := [one for one in names if env.get(one, "").strip()]):
            found[name] = used[0]
    for name, where in sorted(found.items()):
        label = facts_of(name).label
        says = f"{label} is configured ({where}), but this version has no channel for it."
        off = f"hermes config set {where} false" if where.endswith(".enabled") else ""
        yield Unserved(label, says, off)


def _files(home: Home) -> Iterator[Unserved]:
    if names := sorted(path.parent.name for path in home.plugins.glob("*/plugin.yaml")):
        plugins = plural(len(names), "plugin")
        says = (
            f"{plugins} in plugins/ ({', '.join(names)}): this version does not load plugins yet."
        )
        yield Unserved(plugins, says)
    if names := sorted(path.stem for path in (home.path / "skins").glob("*.yaml")):
        skins = plural(len(names), "skin")
        says = f"{skins} in skins/ ({', '.join(names)}): this version does not load skins yet."
        yield Unserved(skins, says)
