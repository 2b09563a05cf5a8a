from hypothesis import given
from hypothesis import strategies as st

from hermes.config.env import DEFAULT_PATH
from hermes.sandbox.child_env import EnvRules, child_env, isolated_env
from hermes.schema.scope import Address, Scope
from support.cases import cases

SCOPE = Scope("default", "s1", "r1", "/work")
SESSION = {
    "HERMES_SESSION_CWD": "/work",
    "HERMES_SESSION_ID": "s1",
    "HERMES_SESSION_PROFILE": "default",
    "HERMES_SESSION_USER_ID": "owner",
}


def test_only_needed_variables_are_passed():
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


def test_home_variable_is_the_profiles_or_hidden():
    env = child_env(EnvRules(process={"HERMES_HOME": "/another"}, home="/mine"), SCOPE)
    assert env["HERMES_HOME"] == "/mine"
    inside = isolated_env(env)
    assert "HERMES_HOME" not in inside
    assert inside.pop("HERMES_HOME_HIDDEN") == "1"
    assert inside.items() < env.items()
    assert isolated_env({"PATH": "/bin"}) == {"PATH": "/bin"}


def test_path_has_a_default():
    assert child_env(EnvRules(process={}), SCOPE) == {"PATH": DEFAULT_PATH} | SESSION


def test_passthrough_never_includes_withheld_secrets():
    process = {"MY_TOOL": "1", "OPENAI_API_KEY": "sk-1", "HERMES_SESSION_CHAT_ID": "of another"}
    rules = EnvRules(process=process, passthrough=list(process), withheld={"OPENAI_API_KEY"})
    assert child_env(rules, SCOPE) == {"PATH": DEFAULT_PATH, "MY_TOOL": "1"} | SESSION


def test_ssh_agent_is_only_for_the_owner():
    rules = EnvRules(process={"SSH_AUTH_SOCK": "/run/agent"})
    guest = Scope("default", "s1", "r1", "/work", principal="telegram:7")
    assert child_env(rules, SCOPE)["SSH_AUTH_SOCK"] == "/run/agent"
    assert "SSH_AUTH_SOCK" not in child_env(rules, guest)


@cases(
    ("value", "expected"),
    [
        ("http://user:pa55@proxy:3128", "http://proxy:3128"),
        ("http://user:p@ss@proxy:3128/x", "http://proxy:3128/x"),
        ("user:pa55@proxy:3128", "proxy:3128"),
        ("http://proxy:3128", "http://proxy:3128"),
        ("http://user:p/a@proxy:3128", ""),
    ],
)
def test_proxy_password_is_only_for_the_owner(value: str, expected: str):
    guest = Scope("default", "s1", "r1", "/work", principal="telegram:7")
    for name in ("HTTPS_PROXY", "all_proxy"):
        rules = EnvRules(process={name: value})
        assert child_env(rules, SCOPE)[name] == value
        assert child_env(rules, guest)[name] == expected


def test_session_variables_come_from_the_scope():
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
def test_secret_with_any_name_is_not_passed(process: dict[str, str]):
    secrets = {f"{name}_KEY": "canary" for name in process}
    env = child_env(EnvRules(process=process | secrets), SCOPE)
    assert {name for name, value in env.items() if value == "canary"} <= {
        name for name in secrets if name.startswith(("LC_", "XDG_"))
    }
