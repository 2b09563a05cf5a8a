"""Grants and allow rules match whole simple commands only."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.approvals.saved_approvals import (
    AllowRule,
    can_be_saved,
    covers,
    make_saved_approval,
    simple_argv,
)
from hermes.approvals.shell_commands import ShellContext, parse_script
from hermes.ports.approval_records import SavedApproval
from hermes.ports.approvals import ApprovalRequest, Isolation
from support.cases import cases

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


def request(action: str, **more: object) -> ApprovalRequest:
    fields = {"tool": "terminal", "reaching": Isolation.OPEN, "shell": True, "folder": "/w"} | more
    return ApprovalRequest(action=action, **fields)  # pyright: ignore[reportArgumentType]


def test_simple_argv_handles_quotes() -> None:
    assert simple_argv("git commit -m 'two words' \"and more\"") == (
        "git", "commit", "-m", "two words", "and more",
    )  # fmt: skip
    assert simple_argv("a'b'\"c\" ''") == ("abc", "")


@cases(
    "text",
    ["", "  ", "A=b ls", "if x", "time ls", "eval ls", "exec ls", ". x", "-x", "''", "ls $HOME",
     "ls ~", "ls *", 'echo "$x"', 'echo "`x`"', "ls\nrm x", "ls # no", "ls\\ x", "ls 'open",
     "echo é"],
)  # fmt: skip
def test_other_syntax_is_not_simple(text: str) -> None:
    assert simple_argv(text) is None


@given(WORDS, st.sampled_from(OPERATORS), WORDS, st.integers(0, 3))
def test_text_with_an_operator_matches_no_rule(
    words: list[str], operator: str, more: list[str], glue: int
) -> None:
    left, right = " " * (glue & 1), " " * (glue >> 1)
    text = " ".join(words) + left + operator + right + " ".join(more)
    assert simple_argv(text) is None
    assert not AllowRule(words[0] + " **").allows(text)
    grant = make_saved_approval(request(" ".join(words)), "g", session="", by="owner")
    assert not covers(grant, request(text))
    assert not can_be_saved(request(text))


@given(st.text(max_size=60))
def test_simple_argv_agrees_with_the_parser(text: str) -> None:
    argv = simple_argv(text)
    if argv is None:
        return
    assert list(argv) == shlex.split(text)
    reading = parse_script(text, HERE)
    assert [found.argv for found in reading.commands] == [argv]
    assert not reading.commands[0].targets


@given(WORDS, WORDS)
def test_grant_covers_only_the_same_words(words: list[str], others: list[str]) -> None:
    if simple_argv(" ".join(words)) is None:
        return
    grant = make_saved_approval(request(" ".join(words)), "g", session="", by="owner")
    assert covers(grant, request(" ".join(words)))
    assert covers(grant, request(" ".join(others))) == (words == others)
    assert not covers(grant, request(" ".join([*words, "more"])))
    assert not covers(grant, request(" ".join(words), reaching=Isolation.BEYOND))
    assert not covers(grant, request(" ".join(words), tool="other"))


def test_grant_for_a_relative_program_is_bound_to_its_folder() -> None:
    grant = make_saved_approval(request("./deploy.sh now"), "g", session="", by="owner")
    assert covers(grant, request("./deploy.sh now"))
    assert not covers(grant, request("./deploy.sh now", folder="/elsewhere"))


def test_grant_is_bound_to_its_folder() -> None:
    for action in ("make test", "python3 scripts/deploy.py"):
        grant = make_saved_approval(request(action), "g", session="", by="owner")
        assert covers(grant, request(action))
        assert not covers(grant, request(action, folder="/elsewhere"))


@pytest.mark.parametrize("tool", ["process", "write_file", "patch"])
def test_one_time_tools_cannot_be_saved(tool: str) -> None:
    for shell in (True, False):
        one = request("y", tool=tool, shell=shell)
        assert not can_be_saved(one)
        assert not covers(make_saved_approval(one, "g", session="", by="owner"), one)


def test_other_actions_match_exactly() -> None:
    request = ApprovalRequest(
        tool="fetch", action="https://a.example/x", reaching=Isolation.NETWORK
    )
    grant = make_saved_approval(request, "g", session="", by="owner")
    assert covers(grant, request)
    assert not covers(
        grant,
        ApprovalRequest(tool="fetch", action="https://a.example/x/y", reaching=Isolation.NETWORK),
    )
    assert not covers(SavedApproval(id="g", tool="fetch", reaching=Isolation.NETWORK), request)


def test_grant_for_a_kind_holds_while_its_seal_is_unchanged() -> None:
    def asked(words: str, seal: str = "1") -> ApprovalRequest:
        return ApprovalRequest(
            tool="far", action=words, reaching=Isolation.BEYOND, detail="x", kind="all", seal=seal
        )

    grant = make_saved_approval(asked("far 1"), "g", session="", by="owner")
    assert can_be_saved(asked("far 1"))
    assert covers(grant, asked("far 2"))
    assert grant.text == "all"
    assert not covers(grant, asked("far 1", seal="2"))


@cases(
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
def test_allow_rules_of_the_settings(rule: str, action: str, *, allowed: bool) -> None:
    assert AllowRule(rule).allows(action) is allowed
