"""Commands cannot plant anything that the owner's git executes later."""

import shutil

import pytest

from hermes.sandbox.landlock import Landlock
from hermes.schema.errors import SandboxError
from support.git_owner import Owner


async def test_hooks_in_a_relative_hooks_path_are_not_executed(owner: Owner):
    """A relative path: in repositories with and without such a folder, and in a new one."""
    owner.add_settings("[core]\n\thooksPath = .githooks\n")
    other = owner.work / "other"
    other.mkdir()
    owner.git("init", "-q", folder=other)
    old = owner.hook(other / ".githooks/post-commit")
    await owner.command(
        "rm -rf other/.githooks; for f in repo other new; do evil $f/.githooks/post-commit;"
        "evil $f/.githooks/pre-commit; done; git init -q new"
    )
    for folder in (owner.repo, other, owner.work / "new"):
        owner.use_git(folder)
    assert not owner.marker.exists()
    assert old.read_text() == "#!/bin/sh\nexit 0\n"


@pytest.mark.parametrize("there", [True, False])
async def test_hooks_at_a_fixed_path_are_not_executed(owner: Owner, there: bool):
    """Set in the second settings file that git reads."""
    text = "[core]\n\thooksPath = ~/work/tools/hooks\n"
    owner.write(owner.home / ".config/git/config", text)
    if there:
        owner.hook(owner.work / "tools/hooks/commit-msg")
    await owner.command("rm -rf tools/hooks; mv tools away; evil tools/hooks/post-commit")
    owner.use_git()
    assert not owner.marker.exists()


async def test_included_settings_files_are_protected(owner: Owner):
    there = owner.write(owner.work / "team/gitconfig", "[core]\n\tabbrev = 12\n")
    owner.add_settings(
        f"[core][include] path = {owner.work}/missing\n"
        f'[includeIf "gitdir:~/work/"]\n\tpath = work/team/gitconfig\n',
    )
    await owner.command(
        f"evil repo/monitor; text='[core]\\n\\tfsmonitor = {owner.repo}/monitor\\n';"
        "mv team away; rm -rf team; mkdir -p team; for f in missing team/gitconfig; do"
        ' printf "$text" > $f; done'
    )
    owner.use_git()
    assert not owner.marker.exists()
    assert there.read_text() == "[core]\n\tabbrev = 12\n"


async def test_configured_hooks_and_programs_are_protected(owner: Owner):
    owner.hook(owner.repo / ".husky/_/pre-commit").write_text("#!/bin/sh\n. .husky/pre-commit\n")
    for name in (".husky/pre-commit", "tools/monitor", "tools/external"):
        owner.hook(owner.repo / name)
    owner.git("config", "core.hooksPath", ".husky/_")
    owner.git("config", "core.fsmonitor", "tools/monitor")
    owner.git("config", "diff.external", "./tools/external -v")
    await owner.command(
        "cd repo; mv tools t; mv .husky h; for f in .husky/pre-commit .husky/_/pre-commit"
        " .husky/_/post-commit .husky/post-commit tools/monitor tools/external; do rm -f $f;"
        " evil $f; done"
    )
    owner.write(owner.repo / "file", "text")
    owner.git("add", "file")
    owner.use_git()
    assert not owner.marker.exists()


async def test_hooks_and_settings_behind_links_are_protected(owner: Owner):
    """Links to a hook, to another link, to the hooks folder, and to the settings."""
    shared = owner.repo / "shared.config"
    (owner.repo / ".git/config").rename(shared)
    (owner.repo / ".git/config").symlink_to("../shared.config")
    text = shared.read_text()
    scripts = [owner.hook(owner.repo / f"scripts/{name}.sh") for name in ("one", "two")]
    (owner.repo / "scripts/link.sh").symlink_to("two.sh")
    hooks = owner.repo / ".git/hooks"
    (hooks / "pre-commit").symlink_to("../../scripts/one.sh")
    (hooks / "commit-msg").symlink_to("../../scripts/link.sh")
    (hooks / "post-commit").symlink_to("../../scripts/missing.sh")
    other = owner.work / "other"
    other.mkdir()
    owner.git("init", "-q", folder=other)
    shutil.rmtree(other / ".git/hooks")
    (other / ".git/hooks").symlink_to("../team/githooks")
    owner.hook(other / "files/githooks/pre-commit")
    (other / "team").symlink_to("files")
    outside = owner.write(owner.home / "outside/githooks/pre-commit", "", 0o755)
    outside.write_text(f"#!/bin/sh\ntouch {owner.marker}\n")
    await owner.command(
        "for f in scripts/{one,two,link,missing}.sh m; do evil repo/$f; rm -f repo/$f;"
        "evil repo/$f; done; printf '[core]\nfsmonitor = %s/repo/m\n' $PWD >> repo/shared.config;"
        "evil other/files/githooks/post-commit; evil other/files/githooks/pre-commit;"
        f"mv other/files other/old; evil other/files/githooks/post-commit;"
        f"rm other/team; ln -s {owner.home}/outside other/team"
    )
    for folder in (owner.repo, other):
        owner.use_git(folder)
    assert not owner.marker.exists()
    assert shared.read_text() == text
    assert {script.read_text() for script in scripts} == {"#!/bin/sh\nexit 0\n"}


async def test_enclosing_repository_is_protected(owner: Owner):
    inner = owner.repo / "inner"
    inner.mkdir()
    owner.git("config", "core.hooksPath", "inner/hooks")
    owner.git("config", "include.path", "../inner/settings")
    (owner.repo / ".git/config.worktree").symlink_to("../inner/tree")
    owner.git("config", "extensions.worktreeConfig", "true")
    await owner.command(
        f"evil hooks/post-commit; evil m; printf '[core]\\nfsmonitor = {inner}/m\\n' > tree;"
        f" printf '[core]\\nfsmonitor = {inner}/m\\n' > settings",
        work=inner,
    )
    owner.use_git()
    assert not owner.marker.exists()


PLANTED = {
    "line": "[core][include] path = MORE",
    "mark": "\ufeff[include]\n\tpath = MORE\n",
    "returns": "[Core]\r\n\tFsMonitor = EVIL ; comment\r\n",
    "condition": '[includeIf "onbranch:**"]\n\tpath = MORE\n',
    "hooks": "[core]\n\thooksPath = elsewhere\n",
    "key": '[commit]gpgsign\n[gpg]format=ssh\n[gpg "ssh"]defaultKeyCommand = EVIL',
    "diff": "[diff]\n\texternal = EVIL\n",
    "filter": '[filter "x"]\n\tclean = EVIL\n',
    "driver": '[diff "x"]\n\ttextconv = EVIL\n',
    "remote": '[remote "origin"]\n\turl = /srv/repo.git\n',
    "push": '[remote "origin"]\n\turl = ../repo\n\tpushurl = file:///srv/repo.git\n',
    "branch": '[branch "master"]\n\tremote = ../../repo.git\n',
    "suffix": '[remote "origin"]\n\turl = outside\n',
    "strategy": "[pull]\n\ttwohead = x/y\n",
    "tree": "[core]\n\tworktree = ../../..\n",
}


async def test_planted_settings_of_new_repositories_are_set_aside(owner: Owner):
    for name, text in PLANTED.items():
        new = owner.work / name
        filled = text.replace("MORE", str(new / "more")).replace("EVIL", str(new / "evil"))
        owner.write(owner.work / "planted" / name, filled)
    done = await owner.command(
        "cd planted; for name in *; do git init -q ../$name; cd ../$name; evil evil;"
        "printf '[core]\\nfsmonitor = %s/evil\\n' $PWD > more;"
        "evil elsewhere/post-commit; echo '* diff=x filter=x' > .gitattributes; echo x > f;"
        "ln -s /srv outside.git;"
        "git add .; git commit -qm one; echo y > f; cat ../planted/$name > .git/config;"
        "cd ../planted; done"
    )
    assert done.exit_code == 0, done.output.decode()
    for name in PLANTED:
        owner.use_git(owner.work / name)
        assert not owner.marker.exists(), name
    assert done.output.count(b"config.set-aside: git would execute it") == len(PLANTED)


async def test_many_folders_do_not_hide_a_repository(owner: Owner):
    await owner.command(
        "mkdir -p a{1..61}/.git many/{1..450}; git init -q z; ls -d a*/.git | wc -l"
    )
    await owner.command(
        "for f in repo z a61; do mkdir -p $f/.git/hooks; evil $f/.git/hooks/post-commit;"
        " evil $f/evil; git -C $f config core.fsmonitor $PWD/$f/evil; done;"
        "cd a61; cp -r ../z/.git/HEAD ../z/.git/objects ../z/.git/refs .git;"
        "printf '[core]\\nfsmonitor = %s\\n' $PWD/evil > .git/config"
    )
    for folder in (owner.repo, owner.work / "z", owner.work / "a61"):
        owner.use_git(folder)
    assert not owner.marker.exists()


async def test_deep_submodule_is_protected(owner: Owner):
    """The index lists it as a submodule, so `git status` visits it."""
    deep = "node_modules/.a/b/c/d/e/f/g"
    await owner.command(
        f"cd repo; git init -q {deep}; cd {deep}; git commit -q --allow-empty -m x; cd -;"
        f"git -c advice.addEmbeddedRepo=false add {deep}; evil evil;"
        f"git -C {deep} config core.fsmonitor $PWD/evil; chmod 500 node_modules"
    )
    owner.use_git()
    assert not owner.marker.exists()


async def test_rebase_with_an_exec_line_is_not_executed(owner: Owner):
    owner.git("commit", "-q", "--allow-empty", "-m", "second")
    await owner.command(
        "cd repo; evil evil; GIT_SEQUENCE_EDITOR=true git rebase -q -x false HEAD~1;"
        'echo "exec $PWD/evil" >> .git/rebase-merge/git-rebase-todo'
    )
    owner.git("rebase", "--continue", check=False)
    assert not owner.marker.exists()


@pytest.mark.parametrize("way", ["long", "rebase", "link", "pick"])
async def test_unfinished_operations_execute_nothing(owner: Owner, way: str):
    """Long lists, and unknown strategies, for which git runs `./git-merge-x/y`."""
    for branch, text in (("side", "1"), ("side", "2"), ("main", "3")):
        owner.git("checkout", "-q", "-B", branch, *(["HEAD~2"] if branch == "main" else []))
        owner.write(owner.repo / "file", text)
        owner.git("add", "file")
        owner.git("commit", "-q", "-m", text)
    start = "git rebase -q main side" if way != "pick" else "git cherry-pick main..side"
    plant = {
        "long": "{ head -c 300000 /dev/zero | tr '\\0' '#'; echo; echo exec $PWD/git-merge-x/y; }"
        " > .git/rebase-merge/git-rebase-todo",
        "rebase": "echo x/y > .git/rebase-merge/strategy",
        "link": "mv .git/rebase-merge state; ln -s ../state .git/rebase-merge;"
        "echo x/y > state/strategy",
        "pick": "printf '[options]\\n\\tstrategy = x/y\\n' > .git/sequencer/opts",
    }[way]
    done = await owner.command(
        f"cd repo; {start}; evil git-merge-x/y; echo git-merge-x >> .git/info/exclude;"
        f"echo state >> .git/info/exclude; {plant} && echo planted"
    )
    assert b"planted" in done.output
    owner.write(owner.repo / "file", "solved")
    owner.git("add", "file")
    word = "cherry-pick" if way == "pick" else "rebase"
    owner.git("-c", "core.editor=true", word, "--continue", check=False)
    assert not owner.marker.exists()


async def test_planted_remotes_are_not_used(owner: Owner):
    """Pushing runs hooks of the remote, which old files can name too."""
    outside = owner.home / "outside.git"
    owner.git("init", "-q", "--bare", str(outside))
    owner.write(outside / "hooks/post-receive", f"#!/bin/sh\ntouch {owner.marker}\n", 0o755)
    owner.git("branch", "-M", "main")
    owner.write(owner.repo / ".git/remotes/mine", "URL: ../mine\n")
    done = await owner.command(
        f"git clone -q repo new; git -C new config remote.origin.url {outside}; cd repo;"
        f"mkdir -p .git/branches; echo {outside} > .git/branches/one;"
        f"echo URL: {outside} > .git/remotes/two; echo URL: {outside} > .git/remotes/mine"
    )
    assert done.exit_code == 0, done.output.decode()
    for folder, name in (("new", "origin"), ("repo", "one"), ("repo", "two"), ("repo", "mine")):
        owner.git("push", name, "HEAD:refs/heads/x", folder=owner.work / folder, check=False)
    assert not owner.marker.exists()
    assert (owner.repo / ".git/remotes/mine").read_text() == "URL: ../mine\n"


async def test_unchecked_folders_are_read_only_or_refused(owner: Owner):
    (owner.work / "big").mkdir()
    for number in range(300):
        (owner.work / f"big/{number}").mkdir()
    command = "echo x > repo/file; echo x > big/299/file; evil repo/.git/hooks/post-commit"
    if isinstance(owner._make(owner.policy), Landlock):
        with pytest.raises(SandboxError, match="could not be checked for git repositories"):
            await owner.command(command, most=150)
        return
    done = await owner.command(command, most=150)
    assert (owner.repo / "file").exists()
    assert not (owner.work / "big/299/file").exists()
    assert f"[sandbox: {owner.work}/big was read-only: ".encode() in done.output
    owner.use_git()
    assert not owner.marker.exists()


async def test_ordinary_git_work_is_unaffected(owner: Owner):
    owner.add_settings("[core]\n\thooksPath = .githooks\n[alias]\n\tst = status\n")
    done = await owner.command(
        "set -e; cd repo; echo 1 > f; git add f; git commit -qm one; git st; git checkout -qb side;"
        "echo 2 > f; git commit -qam two; git rebase -q HEAD~1; git worktree add -q ../tree; cd ..;"
        "git init -q fresh; git -C fresh remote add origin ../repo; git clone -q repo copy;"
        "git clone -q --bare repo bare; git -C copy config user.name 'A B';"
        "git -C copy config pull.rebase true; git -C copy -c protocol.file.allow=always"
        " submodule --quiet add ../repo sub; git -C copy commit -qm sub;"
        "mkdir -p app/node_modules/{a,b,c}/{lib,dist}; ln -s ../a/lib app/node_modules/.bin;"
        "echo {} > app/package.json; git -C tree status --porcelain"
    )
    assert done.exit_code == 0, done.output.decode()
    assert b"sandbox:" not in done.output
    done = await owner.command(
        "set -e; git init -qb one left; cd left; git config user.name A;"
        "for n in 0 1 2; do echo $n > f; git add f; git commit -qm $n; done;"
        "git checkout -qb two HEAD~2; echo 3 > f; git commit -qam 3; cd ..;"
        "for f in picked applied; do cp -r left $f; git -C $f remote add o file://$PWD/left; done;"
        "! git -C left rebase -qs ort one; ! git -C picked cherry-pick --strategy resolve two..one;"
        "! git -C applied rebase -q --apply -C1 --whitespace=fix one;"
        "ls left/.git/rebase-merge/strategy picked/.git/sequencer/opts"
        " applied/.git/rebase-apply/apply-opt"
    )
    assert done.exit_code == 0, done.output.decode()
    assert b"sandbox:" not in done.output
    done = await owner.command("cd copy && echo 3 > g && git add g && git commit -qm three")
    assert done.exit_code == 0, done.output.decode()
    assert "three" in owner.git("log", "--oneline", folder=owner.work / "copy")
    assert not [*owner.work.rglob("*.set-aside*")]
