"""The real gateway process, with the test platform among its channels.

usage: python -m hermes.testing.platform.gateway

It is `hermes gateway run` for the home in HERMES_HOME, in which `platforms.test.extra` says
where the platform is (`url`) and as whom to speak there (`account`). It prints `READY=1`.
"""

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from hermes.app.service.main import run_gateway
from hermes.app.service.options import RunOptions
from hermes.config.env import Env, process_env
from hermes.config.home import resolve_home
from hermes.ports.channel import Channel, ChannelDeps, ChannelManifest
from hermes.schema.errors import ConfigError, HermesError
from hermes.testing.platform.channel import open_platform_channel

TEST_MANIFEST = ChannelManifest(
    name="test", factory="hermes.testing.platform.gateway:open_test_channel"
)


@asynccontextmanager
async def open_test_channel(parts: ChannelDeps) -> AsyncGenerator[Channel]:
    extra = parts.settings.extra
    url, account = extra.get("url"), extra.get("account")
    if not isinstance(url, str) or not isinstance(account, str):
        raise ConfigError("The test platform needs a url and an account.")
    async with open_platform_channel(url, account, parts.clock, parts.name) as channel:
        yield channel


def main() -> int:
    env = Env(process_env())
    try:
        # What a starter would read from a pipe is told on stdout.
        options = RunOptions(ready_fd=os.dup(1))
        return run_gateway(resolve_home(env), env, options, {TEST_MANIFEST.name: TEST_MANIFEST})
    except HermesError as error:
        sys.stderr.write(f"{error.sentence}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
