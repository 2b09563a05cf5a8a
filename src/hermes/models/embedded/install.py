"""Download an embedded model and install its engine."""

import sys
from collections.abc import Mapping

from hermes.config.env import Env
from hermes.models.embedded.download import DownloadDeps, ReportDownload, download_weights
from hermes.models.embedded.packages import check_install_space, install_engine
from hermes.models.embedded.servers import engine_env
from hermes.models.embedded.weights import ModelFolder, Weights
from hermes.ports.plugins import LaunchProgram

PIP_PREFIXES = ("PIP_", "SSL_", "REQUESTS_")
"""Variables that configure how pip reaches its packages."""


def pip_env(env: Mapping[str, str]) -> dict[str, str]:
    """The engine's variables and those that say where and how to get packages."""
    extra = {
        name: value
        for name, value in env.items()
        if name.startswith(PIP_PREFIXES) or name.lower().endswith("_proxy")
    }
    return engine_env(env) | extra


async def fetch_model(
    weights: Weights, folder: ModelFolder, env: Env, launch: LaunchProgram, report: ReportDownload
) -> None:
    """Download the missing weights of a model and install its engine, without asking.

    Raises `ConfigError` if the disk is full, `Unreachable` if no source works.
    """
    check_install_space(weights, folder)
    deps = DownloadDeps(
        launch=launch,
        python=sys.executable,
        env=pip_env(env),
        proxy=env.get("HTTPS_PROXY", "") or env.get("https_proxy", ""),
    )
    await install_engine(weights, folder, deps, report)
    await download_weights(weights, folder, deps, report)
