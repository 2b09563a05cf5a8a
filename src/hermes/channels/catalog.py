"""The channels that come with the program, by name; none is imported before it is opened."""

from collections.abc import Mapping

from hermes.ports.channel import Manifest

MANIFESTS: Mapping[str, Manifest] = {
    manifest.name: manifest
    for manifest in (
        Manifest(name="webhook", factory="hermes.channels.webhook.opening:open_channel"),
    )
}
