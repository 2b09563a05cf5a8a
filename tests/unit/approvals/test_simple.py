"""Allow rules: they match the words of simple commands, and nothing that only looks like one."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.approvals.grants import AllowRule, Grant, can_be_saved, make_grant, simple_argv
from hermes.approvals.shell.parser import ShellContext, parse_script
from hermes.ports.approvals import ApprovalRequest, Isolation

HERE = ShellContext("/w", "/h")
OPERATORS = [
    "&&", "||", ";", "|", "&", "\n", ">", "<", ">>", "<<<", "$(", "`", "${", "$x", "(", ")", "{",
    "}",
    "*", "?", "[", "~", "#", "\\", "!", "\r", "\x00",
]  # fmt: skip
WORDS = st.lists(
    st.text("abcdefghijklmnopqrstuvwxyzABC0123456789_./:@%+,-", min_size=1, max_size=8).filter(
        lambda word: not word.startswith("-")
    ),
    min_size=1,
    max_size=5,
)


def wish(action: str, **more: object) -> ApprovalRequest:
    fields = {"tool": "terminal", "reaching": Isolation.OPEN, "shell": True, "folder": "/w"} | more
    return ApprovalRequest(action=action, **fields)  # pyright: ignore[reportArgumentType]


def test_words_with_and_without_quotes() -> None:
    assert simple_argv("git commit -m 'two words' \"and more\"") == (
        "git", "commit", "-m", "two words", "and more",
    )  # fmt: skip
    assert simple_argv("a'b'\"c\" ''") == ("abc", "")


@pytest.mark.parametrize(
    "text",
    ["", "  ", "A=b ls", "if x", "time ls", "eval ls", "exec ls", ". x", "-x", "''", "ls $HOME",
     "ls ~", "ls *", 'echo "$x"', 'echo "`x`"', "ls\nrm x", "ls # no", "ls\\ x", "ls 'open",
     "echo é"],
)  # fmt: skip
def test_everything_else_is_not_simple(text: str) -> None:
    assert simple_argv(text) is None


@given(WORDS, st.sampled_from(OPERATORS), WORDS, st.integers(0, 3))
def test_no_text_with_an_operator_matches_a_rule(
    words: list[str], operator: str, more: list[str], glue: int
) -> None:
    left, right = " " * (glue & 1), " " * (glue >> 1)
    text = " ".join(words) + left + operator + right + " ".join(more)
    assert simple_argv(text) is None
    assert not AllowRule(words[0] + " **").allows(text)
    grant = make_grant(wish(" ".join(words)), "g", session="", by="owner")
    assert not grant.covers(wish(text))
    assert not can_be_saved(wish(text))


@given(st.text(max_size=60))
def test_what_is_simple_is_one_command_with_exactly_these_words(text: str) -> None:
    argv = simple_argv(text)
    if argv is None:
        return
    assert list(argv) == shlex.split(text)
    reading = parse_script(text, HERE)
    assert [found.argv for found in reading.found] == [argv]
    assert not reading.found[0].targets


@given(WORDS, WORDS)
def test_a_grant_is_for_the_same_words_only(words: list[str], others: list[str]) -> None:
    if simple_argv(" ".join(words)) is None:
        return
    grant = make_grant(wish(" ".join(words)), "g", session="", by="owner")
    assert grant.covers(wish(" ".join(words)))
    assert grant.covers(wish(" ".join(others))) == (words == others)
    assert not grant.covers(wish(" ".join([*words, "more"])))
    assert not grant.covers(wish(" ".join(words), reaching=Isolation.BEYOND))
    assert not grant.covers(wish(" ".join(words), tool="other"))


def test_a_program_beside_us_counts_in_its_own_folder_only() -> None:
    grant = make_grant(wish("./deploy.sh now"), "g", session="", by="owner")
    assert grant.covers(wish("./deploy.sh now"))
    assert not grant.covers(wish("./deploy.sh now", folder="/elsewhere"))


def test_a_grant_counts_in_its_folder_only() -> None:
    for action in ("make test", "python3 scripts/deploy.py"):
        grant = make_grant(wish(action), "g", session="", by="owner")
        assert grant.covers(wish(action))
        assert not grant.covers(wish(action, folder="/elsewhere"))


@pytest.mark.parametrize("tool", ["process", "write_file", "patch"])
def test_what_is_about_one_moment_does_not_last(tool: str) -> None:
    for shell in (True, False):
        one = wish("y", tool=tool, shell=shell)
        assert not can_be_saved(one)
        assert not make_grant(one, "g", session="", by="owner").covers(one)


def test_what_is_no_command_is_the_same_or_it_is_not() -> None:
    asked = ApprovalRequest(tool="fetch", action="https://a.example/x", reaching=Isolation.NETWORK)
    grant = make_grant(asked, "g", session="", by="owner")
    assert grant.covers(asked)
    assert not grant.covers(
        ApprovalRequest(tool="fetch", action="https://a.example/x/y", reaching=Isolation.NETWORK)
    )
    assert not Grant(id="g", tool="fetch", reaching=Isolation.NETWORK).covers(asked)


def test_a_kind_of_action_is_allowed_while_its_seal_is_the_same() -> None:
    def asked(words: str, seal: str = "1") -> ApprovalRequest:
        return ApprovalRequest(
            tool="far", action=words, reaching=Isolation.BEYOND, detail="x", kind="all", seal=seal
        )

    grant = make_grant(asked("far 1"), "g", session="", by="owner")
    assert can_be_saved(asked("far 1"))
    assert grant.covers(asked("far 2"))
    assert grant.shown == "all"
    assert not grant.covers(asked("far 1", seal="2"))


@pytest.mark.parametrize(
    ("rule", "action", "allowed"),
    [
        ("npm test", "npm test", True),
        ("npm test", "npm test --x", False),
        ("npm test", "npm", False),
        ("git push **", "git push origin main", True),
        ("git push **", "git push", True),
        ("git push **", "git pushx", False),
        ("git * --stat", "git diff --stat", True),
        ("git *", "git a b", False),
        ("*", "rm x", False),
        ("**", "rm x", False),
        ("", "ls", False),
        ("rm -r build", "rm -r build && reboot", False),
        ("recursive delete", "rm -rf build", False),
    ],
)
def test_lines_of_the_settings(rule: str, action: str, *, allowed: bool) -> None:
    assert AllowRule(rule).allows(action) is allowed
