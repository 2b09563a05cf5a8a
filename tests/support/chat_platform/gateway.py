"""Run the real gateway with the fake platform among its channels.

usage: python -m support.chat_platform.gateway

This is `hermes gateway run` for the home in HERMES_HOME, where `platforms.test.extra` contains the
`url` of the platform and the `account` to use. It prints `READY=1` when ready.
"""

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from hermes.app.service.lifecycle import RunOptions
from hermes.app.service.main import run_gateway
from hermes.config.env import Env, process_env
from hermes.config.home import resolve_home
from hermes.ports.channel import Channel, ChannelDeps, ChannelManifest
from hermes.schema.errors import ConfigError, HermesError
from support.chat_platform.channel import TEST_CAPABILITIES, open_platform_channel

TEST_MANIFEST = ChannelManifest(
    name="test",
    factory="support.chat_platform.gateway:open_test_channel",
    caps=TEST_CAPABILITIES,
)


@asynccontextmanager
async def open_test_channel(parts: ChannelDeps) -> AsyncGenerator[Channel]:
    extra = parts.settings.extra
    url, account = extra.get("url"), extra.get("account")
    if not isinstance(url, str) or not isinstance(account, str):
        raise ConfigError("The test platform needs `url` and `account` in its `extra` settings.")
    opened = open_platform_channel(url, account, parts.clock, parts.name, parts.blobs)
    async with opened as channel:
        yield channel


def main() -> int:
    env = Env(process_env())
    try:
        # Report readiness on stdout instead of a pipe.
        options = RunOptions(ready_fd=os.dup(1))
        return run_gateway(resolve_home(env), env, options, {TEST_MANIFEST.name: TEST_MANIFEST})
    except HermesError as error:
        sys.stderr.write(f"{error.sentence}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
