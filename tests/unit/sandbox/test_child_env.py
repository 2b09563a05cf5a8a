import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.sandbox.child_env import DEFAULT_PATH, EnvRules, child_env, isolated_env
from hermes.schema.scope import Address, Scope

SCOPE = Scope("default", "s1", "r1", "/work")
SESSION = {
    "HERMES_SESSION_CWD": "/work",
    "HERMES_SESSION_ID": "s1",
    "HERMES_SESSION_PROFILE": "default",
    "HERMES_SESSION_USER_ID": "owner",
}


def test_only_what_a_program_needs_is_passed_on():
    process = {
        "PATH": "/bin",
        "HOME": "/home/me",
        "LC_ALL": "C",
        "XDG_CONFIG_HOME": "/c",
        "HTTPS_PROXY": "http://p",
        "https_proxy": "http://p",
        "OPENAI_API_KEY": "sk-1",
        "AWS_SECRET_ACCESS_KEY": "x",
        "LD_PRELOAD": "/evil.so",
        "BASH_ENV": "/evil",
        "PYTHONPATH": "/x",
    }
    kept = ("PATH", "HOME", "LC_ALL", "XDG_CONFIG_HOME", "HTTPS_PROXY", "https_proxy")
    wanted = {name: process[name] for name in kept} | SESSION
    assert child_env(EnvRules(process=process), SCOPE) == wanted


def test_a_command_is_of_the_profile_of_its_turn_unless_it_cannot_see_its_home():
    env = child_env(EnvRules(process={"HERMES_HOME": "/another"}, home="/mine"), SCOPE)
    assert env["HERMES_HOME"] == "/mine"
    inside = isolated_env(env)
    assert "HERMES_HOME" not in inside
    assert inside.pop("HERMES_HOME_HIDDEN") == "1"
    assert inside.items() < env.items()
    assert isolated_env({"PATH": "/bin"}) == {"PATH": "/bin"}


def test_there_is_always_a_path():
    assert child_env(EnvRules(process={}), SCOPE) == {"PATH": DEFAULT_PATH} | SESSION


def test_names_may_be_added_but_secrets_of_the_house_never():
    process = {"MY_TOOL": "1", "OPENAI_API_KEY": "sk-1", "HERMES_SESSION_CHAT_ID": "of another"}
    rules = EnvRules(process=process, passthrough=list(process), withheld={"OPENAI_API_KEY"})
    assert child_env(rules, SCOPE) == {"PATH": DEFAULT_PATH, "MY_TOOL": "1"} | SESSION


def test_the_ssh_agent_is_for_the_owner():
    rules = EnvRules(process={"SSH_AUTH_SOCK": "/run/agent"})
    guest = Scope("default", "s1", "r1", "/work", principal="telegram:7")
    assert child_env(rules, SCOPE)["SSH_AUTH_SOCK"] == "/run/agent"
    assert "SSH_AUTH_SOCK" not in child_env(rules, guest)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("http://user:pa55@proxy:3128", "http://proxy:3128"),
        ("http://user:p@ss@proxy:3128/x", "http://proxy:3128/x"),
        ("user:pa55@proxy:3128", "proxy:3128"),
        ("http://proxy:3128", "http://proxy:3128"),
        ("http://user:p/a@proxy:3128", ""),
    ],
)
def test_the_password_of_a_proxy_is_the_owners(given: str, told: str):
    guest = Scope("default", "s1", "r1", "/work", principal="telegram:7")
    for name in ("HTTPS_PROXY", "all_proxy"):
        rules = EnvRules(process={name: given})
        assert child_env(rules, SCOPE)[name] == given
        assert child_env(rules, guest)[name] == told


def test_the_session_is_told_where_it_speaks():
    there = Scope("p", "s2", "r", "/w", "telegram:7", Address("telegram", "42", "9"))
    env = child_env(EnvRules(process={"HERMES_SESSION_THREAD_ID": "1"}), there)
    assert env["HERMES_SESSION_PLATFORM"] == "telegram"
    assert env["HERMES_SESSION_CHAT_ID"] == "42"
    assert env["HERMES_SESSION_THREAD_ID"] == "9"
    plain = Scope("p", "s2", "r", "/w", "telegram:7", Address("telegram", "42"))
    assert "HERMES_SESSION_THREAD_ID" not in child_env(
        EnvRules(
            process={"HERMES_SESSION_THREAD_ID": "1"}, passthrough=["HERMES_SESSION_THREAD_ID"]
        ),
        plain,
    )


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=5), max_size=20))
def test_a_secret_under_any_name_stays_outside(process: dict[str, str]):
    secrets = {f"{name}_KEY": "canary" for name in process}
    env = child_env(EnvRules(process=process | secrets), SCOPE)
    assert {name for name, value in env.items() if value == "canary"} <= {
        name for name in secrets if name.startswith(("LC_", "XDG_"))
    }
