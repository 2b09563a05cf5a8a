"""Programs of Debian packages that tests run."""

import os
import shutil
import subprocess

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin"


def install_program(program: str, package: str) -> str:
    """Install the package if we may; return why the program is not there."""
    if shutil.which(program, path=PATH):
        return ""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return f"{program} is not installed, and only root can install it with apt-get"
    command = ["apt-get", "install", "-y", "--no-install-recommends", package]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    return "" if ran.returncode == 0 else f"{package} cannot be installed: {ran.stderr[-300:]}"
