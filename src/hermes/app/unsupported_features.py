"""List the features that a home configures but this version does not serve."""

from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct

from hermes.app.channels import SURFACES
from hermes.channels import MANIFESTS
from hermes.config.home import Home
from hermes.config.platforms import PLATFORMS, PlatformFacts, facts_of
from hermes.config.schema import Config
from hermes.config.setting_warnings import FALSE_WORDS
from hermes.kit.text import plural


class UnsupportedFeature(Struct, frozen=True):
    """A feature that the owner may expect: a short name, a sentence, and how to turn it off."""

    name: str
    sentence: str
    fix: str = ""


def unsupported_features(
    home: Home, config: Config, env: Mapping[str, str], channels: Collection[str] = MANIFESTS
) -> list[UnsupportedFeature]:
    """`channels` are the platforms with a channel."""
    return [*_platforms(config, env, channels), *_files(home)]


def _platforms(
    config: Config, env: Mapping[str, str], channels: Collection[str]
) -> Iterator[UnsupportedFeature]:
    """Chat apps without a channel, by their settings or by a token in the environment."""
    found = {
        name: f"platforms.{name}.enabled"
        for name, settings in config.platforms.items()
        if settings.enabled and name not in channels and name not in SURFACES
    }
    for platform in PLATFORMS:
        if platform.platform not in channels and (variable := _configuring_variable(platform, env)):
            found[platform.platform] = variable
    for name, where in sorted(found.items()):
        label = facts_of(name).label
        says = f"{label} is configured ({where}), but this version has no channel for it."
        off = f"hermes config set {where} false" if where.endswith(".enabled") else ""
        yield UnsupportedFeature(label, says, off)


def _configuring_variable(platform: PlatformFacts, env: Mapping[str, str]) -> str:
    """The variable that configures a platform: a secret, or the first of its list."""
    for index, (suffix, _, secret) in enumerate(platform.variables):
        name = f"{platform.prefix}_{suffix}"
        value = env.get(name, "").strip().lower()
        if (secret or not index) and value and not (suffix == "ENABLED" and value in FALSE_WORDS):
            return name
    return ""


def _files(home: Home) -> Iterator[UnsupportedFeature]:
    if names := sorted(path.parent.name for path in home.plugins.glob("*/plugin.yaml")):
        plugins = plural(len(names), "plugin")
        says = (
            f"{plugins} in plugins/ ({', '.join(names)}): this version does not load plugins yet."
        )
        yield UnsupportedFeature(plugins, says)
    if names := sorted(path.stem for path in (home.path / "skins").glob("*.yaml")):
        skins = plural(len(names), "skin")
        says = f"{skins} in skins/ ({', '.join(names)}): this version does not load skins yet."
        yield UnsupportedFeature(skins, says)
