"""The catalog lists platforms without loading them, and the core does not name them."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hermes
from hermes.channels import MANIFESTS
from hermes.channels.http_client import UPLOAD_TIMEOUT
from hermes.config.platforms import PLATFORMS, facts_of

PROGRAM = Path(hermes.__file__).parent
FOLDER_NAMES = {PROGRAM / "app" / "sandboxes.py"}
"""Names folders of a home, not platforms."""


def test_listing_platforms_loads_no_driver() -> None:
    code = (
        "import sys, hermes.channels\n"
        "manifests = hermes.channels.MANIFESTS.values()\n"
        "drivers = {one.factory.partition(':')[0] for one in manifests}\n"
        "packages = {'aiohttp', 'discord', 'markdown_it', 'nio', 'olm', 'slack_sdk', 'slixmpp', "
        "'vodozemac'}\n"
        "print(len(drivers) == len(manifests), sorted((packages | drivers) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True []"


def test_manifests_are_listed_by_name() -> None:
    assert all(name == manifest.name for name, manifest in MANIFESTS.items())
    assert all(":" in manifest.factory for manifest in MANIFESTS.values())


@pytest.mark.parametrize("platform", ["discord", "telegram", "whatsapp_cloud"])
def test_upload_has_its_whole_time(platform: str) -> None:
    """The gateway gives up a post later than the channel gives up an upload."""
    assert MANIFESTS[platform].caps.send_seconds > UPLOAD_TIMEOUT


@pytest.mark.slow
def test_gateway_and_composition_name_no_platform() -> None:
    names = {one.platform for one in PLATFORMS} | {one.prefix for one in PLATFORMS}
    found = [
        f"{path.relative_to(PROGRAM)}:{node.lineno}: {node.value}"
        for folder in ("gateway", "app")
        for path in (PROGRAM / folder).rglob("*.py")
        if path not in FOLDER_NAMES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in names - {"signal", "SIGNAL"}
    ]
    assert found == []


def test_unlisted_platform_has_default_facts() -> None:
    facts = facts_of("my-chat")
    assert (facts.prefix, facts.home, facts.ids) == ("MY_CHAT", "HOME_CHANNEL", "exact")
    assert facts.pairing
    assert not facts.sender_role
