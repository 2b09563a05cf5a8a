"""Passkeys and OpenID Connect need packages that are loaded late, or named if they are missing."""

import subprocess
import sys

BLOCKED = "import sys; sys.modules.update(jwt=None, cryptography=None)\n"
PASSKEY = """
from hermes.web.passkeys import check_available
try:
    check_available("localhost")
except Exception as error:
    print(error)
"""
OIDC = """
from hermes.config.schema import Config
from hermes.config.sections.general import Dashboard, DashboardOauth, OidcLogin
from hermes.web.settings import read_settings
login = OidcLogin(issuer="https://id.example", client_id="x", allowed_subjects=("*",))
try:
    read_settings(Config(dashboard=Dashboard(oauth=DashboardOauth(self_hosted=login))))
except Exception as error:
    print(error.sentence)
"""
LATE = """
import sys
import hermes.web.server, hermes.web.pages
print({"jwt", "cryptography"} & set(sys.modules))
"""


def output(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_missing_package_is_named_with_the_command_that_installs_it() -> None:
    for program in (PASSKEY, OIDC):
        assert "install 'pyjwt[crypto]" in output(BLOCKED + program)
        assert output(program) == ""


def test_packages_are_loaded_at_the_first_use() -> None:
    assert output(LATE) == "set()"
