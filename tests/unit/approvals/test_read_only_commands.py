"""Read-only commands and commands that only look like them."""

import pytest

from hermes.approvals.shell_commands import ShellContext
from hermes.approvals.shell_hints import is_private_path, is_read_only_script
from support.cases import cases

HERE = ShellContext("/home/me/w", "/home/me")


@cases(
    "text",
    [
        "ls", "ls -la | head -5", "cat a.py", "grep -n 'two words' a.py | wc -l", "pwd; whoami",
        "find . -name '*.py' -type f", "sort -rn a | uniq -c", "git status --short", "date +%F",
        "git log --oneline -5", "cd src && cat x 2>/dev/null", "ls missing 2>&1 | tail -n 3",
        "diff -u a b", "ps aux | grep python", "cut -d: -f1 a",
    ],
)  # fmt: skip
def test_read_only_script_is_recognized(text: str) -> None:
    assert is_read_only_script(text, HERE)


@cases(
    "text",
    [
        "", "touch x", "./ls", "/opt/evil/cat x", "LD_PRELOAD=./x.so ls", "PATH=. ls", "X=1; ls",
        "GIT_EXTERNAL_DIFF=./evil git diff", "GIT_PAGER='sh -c id' git log", "git diff",
        "git grep -O./evil foo", "git grep --open-files-in-pager=./evil x",
        "git log --output /root/.bashrc", "git log --output=x", "git diff --ext-diff",
        "git -c core.pager=x log", "git --exec-path=. status", "git -C . --git-dir=evil status",
        "sort --compress-program=./evil -S1k big", "sort -uo/root/.bashrc f", "sort -o a b",
        "uniq a /root/.bashrc", "xxd -p a b", "rg --pre ./evil x", "yq --inplace .a=1 f",
        "date -s 2001-01-01", "hostname evil", "printf -v x y", "cat <(touch /root/x)",
        "echo ${x:=$(touch y)}", "less +!id f", "env", "printenv", "file -C -m x",
        "tree -o /root/x", "tree -R -H . -o/root/x", "echo $((a[$(touch z)]))",
        "test -v 'a[$(touch z)]'", "[ 'a[$(touch z)]' -eq 1 ]", "BASH_ENV=./x env", "ls > x",
        "ls >/dev/nullx", "ls & rm x", "ls |& sh", "ls\nrm x", "jq -n env", "ps auxe", "cat *",
        "cat ~/x", "find . -delete", "find . -fprintf x y", "grep -r x .", "ls `x`", "cat a | sh",
        "cat .env", "cat /home/me/.ssh/id_rsa", "head /proc/self/environ", "cd ../.ssh && cat x",
        "cat ../.hermes/config", "cat server.pem", "strings ../.aws/credentials", "ls; ls ;; x",
    ],
)  # fmt: skip
def test_writes_and_secret_reads_are_not_read_only(text: str) -> None:
    assert not is_read_only_script(text, HERE)


def test_nothing_is_read_only_in_a_private_folder() -> None:
    assert not is_read_only_script("cat id", ShellContext("/home/me/.ssh", "/home/me"))


@pytest.mark.parametrize("path", ["src/a.py", "README.md", "environment.yml", "keys.md"])
def test_ordinary_paths_are_not_private(path: str) -> None:
    assert not is_private_path(path, "/home/me/w")


@pytest.mark.parametrize(
    "text",
    ["cat /srv/agent/memories/MEMORY.md", "cat ../state.db", "ls /srv/agent", "cd .. && cat x"],
)
def test_reading_the_agents_home_is_not_read_only(text: str) -> None:
    context = ShellContext("/srv/agent/workspace", "/home/me", "/srv/agent")
    assert not is_read_only_script(text, context)
    assert is_read_only_script("cat notes.md && ls /srv/other", context)
