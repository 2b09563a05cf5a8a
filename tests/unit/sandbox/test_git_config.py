"""Git settings are parsed as by git, and unknown settings are unsafe."""

import os
import random
import subprocess

import pytest

from hermes.sandbox.git_config import parse_config, unsafe_settings
from support.cases import cases

PIECES = (
    "[core]", "[include]", '[a "b\\"c"]', '[A.b "C"]', "[a.B]", "[ core]", "[]", "path", "=", " ",
    "\t", "\n", "\r\n", "\r", "x", '"', "\\", "\\n", "\\\n", "#", ";", "é", "\ufeff", "fsmonitor",
    "1", "-", "[", "]", "!", "_", "k = v\n", "[core]\n", ".", "\f",
)  # fmt: skip
TEXTS = (
    "", "\ufeff", "\ufeff[include]path=x", "[core][include] path=x", "[a]k=\\\nv\\\n w",
    '[a]k="a # b" ; c', "[a]k", "[a]k\n=v", "[a]k = a  b\t\n", '[a ""]k=v', "[a]\r\nk = v\r\n",
    "[a]k=v\\", '[a]k="v', "k=v", "[a]1k=v", '[a "b]"]k=v', '[a "b\\\\"]k=v', "\ufeff\ufeff[a]k=v",
)  # fmt: skip


def parse_with_git(text: bytes) -> list[tuple[str, str]] | None:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    argv = ["git", "config", "--file", "-", "--no-includes", "--list", "-z"]
    done = subprocess.run(
        argv, input=text, capture_output=True, env=env, cwd="/", timeout=60, check=False
    )
    if done.returncode:
        return None
    pairs = (one.partition(b"\n") for one in done.stdout.split(b"\0")[:-1])
    return [(name.decode("latin-1"), os.fsdecode(value)) for name, _, value in pairs]


def _without_spaces(settings: list[tuple[str, str]] | None) -> list[tuple[str, str]] | None:
    """Drop spaces in values, which git versions treat differently."""
    return settings and [(name, "".join(value.split())) for name, value in settings]


@pytest.mark.slow
def test_parser_agrees_with_git():
    chance = random.Random(7)  # noqa: S311 - the same texts every time
    made = ("".join(chance.choices(PIECES, k=chance.randint(2, 14))) for _ in range(150))
    for text in (*TEXTS, *made):
        parsed = parse_config(text.encode())
        read = [*parsed.settings] if parsed.complete else None
        assert _without_spaces(read) == _without_spaces(parse_with_git(text.encode())), text


@cases(
    "name",
    [
        "core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.askPass",
        "core.gitProxy", "core.hooksPath", "core.alternateRefsCommand", "core.attributesFile",
        "diff.external", "diff.x.textconv", "diff.x.command", "merge.x.driver", "filter.x.clean",
        "filter.x.smudge", "filter.x.process", "credential.helper", "credential.https://x.helper",
        "gpg.program", "gpg.ssh.program", "gpg.ssh.defaultKeyCommand", "sequence.editor",
        "interactive.diffFilter", "alias.st", "url.x.insteadOf", "protocol.ext.allow",
        "remote.x.uploadpack", "remote.x.receivepack", "remote.x.vcs", "uploadpack.packObjectsHook",
        "trailer.x.command", "trailer.x.cmd", "man.x.cmd", "browser.x.cmd", "difftool.x.cmd",
        "mergetool.x.cmd", "sendemail.sendmailCmd", "sendemail.x.smtpServer", "guitool.x.cmd",
        "gc.recentObjectsHook", "include.path", "includeIf.gitdir:x.path", "pager.diff",
        "init.templateDir", "web.browser", "instaweb.httpd", "lfs.customtransfer.x.path",
        "hook.x.command", "unheard.of", "branch.x.mergeOptions",
    ],
)  # fmt: skip
def test_settings_that_execute_programs_are_unsafe(name: str):
    section, _, rest = name.partition(".")
    inside, dot, key = rest.rpartition(".")
    head = f'[{section} "{inside}"]' if dot else f"[{section}]"
    assert unsafe_settings(f"{head}\n\t{key} = true\n".encode())


@pytest.mark.parametrize(
    "text",
    [
        '[remote "o"]\n\turl = ext::sh -c evil\n',
        '[submodule "s"]\n\tupdate = !evil\n',
        "[core]\n\tbare = false\n[core\n",
        "[core]\n\tbare = false\0\n",
    ],
)
def test_unsafe_values_and_broken_texts_are_unsafe(text: str):
    assert unsafe_settings(text.encode())


def test_settings_written_by_git_are_safe():
    assert not unsafe_settings(
        b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
        b'\tlogallrefupdates = true\n[remote "origin"]\n\turl = https://x/y.git\n'
        b'\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch "a.b"]\n\tremote = origin\n'
        b'\tmerge = refs/heads/a.b\n[submodule "s"]\n\tactive = true\n\turl = ../s\n'
        b"[user]\n\tname = A B\n[extensions]\n\tworktreeConfig = true\n"
    )
