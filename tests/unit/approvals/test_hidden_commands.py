"""Commands hidden in other commands are found; ordinary commands are not blocked."""

import pytest

from hermes.approvals.shell_commands import ShellContext, parse_script
from hermes.approvals.shell_hints import hard_deny_reason
from support.cases import cases

HOME = "/home/me"
HERE = ShellContext("/home/me/work", HOME)

INSIDE = [
    "echo ${x:-$(git push x)}", "echo ${x/$(git push x)/y}", "echo ${x:$(git push x)}",
    "echo ${x:0:$(git push x)}", "echo $[ $(git push x) ]", 'echo "$(( $(git push x) ))"',
    "echo $((`git push x`))", 'unset "a[$(git push x)]"', "unset a[$(git push x)]",
    "a=([$(git push x)]=1)", "a=($(git push x))", "declare x=$(git push x)",
    'export "x=$(git push x)"', "for ((i=$(git push x);i<1;i++)); do :; done",
    "((i+=$(git push x)))", "case ${x:-$(git push x)} in a) ;; esac",
    "case x in $(git push x)) ;; esac", "[[ ${x:-$(git push x)} == y ]]",
    "[[ a =~ $(git push x) ]]", "[[ -n `git push x` ]]", "cat <<< ${x:-$(git push x)}",
    'cat <<< "${x:-`git push x`}"', "echo x > ${x:-$(git push x)}", 'cat < "${x:-$(git push x)}"',
    "cat <<E\n${x:-$(git push x)}\nE", "cat <<E\n$(( $(git push x) ))\nE",
    "cat <<E\n${x:-`git push x`}\nE", "cat <<-E\n\t`git push x`\nE",
    "cat <<E | cat\n`git push x`\nE", "cat <<E && ls\nhi `git push x` there $(ls) `pwd`\nE",
    "echo ${x:-${y:-$(git push x)}}", 'echo ${x:-"a$(git push x)b"}',
    'echo "a${x:-"$(git push x)"}b"', "echo ${x:+`git push x`}", "echo ${!x:-$(git push x)}",
    "echo ${a[@]:$(git push x)}", "echo ${a[`git push x`]}", "f() { local y=${1:-$(git push x)}; }",
    'echo "$(echo ${x:-$(git push x)})"', "select i in ${x:-$(git push x)}; do :; done",
    "for i in ${x:-$(git push x)}; do :; done", "while [ ${x:-$(git push x)} ]; do :; done",
    "if [[ $(( $(git push x) )) ]]; then :; fi", "$(git push x)", "`git push x`", '"$(git push x)"',
    "x=`git push x`", "x=${y:-`git push x`} ls", "ls {a,$(git push x)}", "ls ~$(git push x)",
    'echo a"${x:-$(git push x)}"b', 'echo $"${x:-$(git push x)}"', "time ${x:-$(git push x)}",
    "! ${x:-$(git push x)}", "coproc ${x:-$(git push x)}", "exec 3< <(git push x)",
    "exec {fd}> >(git push x)", "cat <(cat <(git push x))", "diff <(ls) <(`git push x`)",
    "tee >(git push x)", 'eval "\\$(git push x)"', "eval '`git push x`'",
    "echo $(< ${x:-$(git push x)})", "echo ${x@P} ${x:-$(git push x)}", 'trap "$(git push x)" EXIT',
    'alias a="$(git push x)"', "return $(git push x)", "exit ${x:-$(git push x)}",
    "x+=$(git push x)", 'readonly z="${x:=$(git push x)}"', 'local -a z=( "${x:=$(git push x)}" )',
    'let "x=$(git push x)"', "let x=`git push x`", "test $((1+$(git push x))) -eq 2",
    "echo $(( x ? $(git push x) : 1 ))", "echo $((x[$(git push x)]))", "echo ${x:?$(git push x)}",
    "echo ${x?`git push x`}", "ls; # c\n${x:-$(git push x)}", "{ ${x:-$(git push x)}; }",
    "( ${x:-$(git push x)} )", "a | b ${x:-$(git push x)}", "${x:-$(git push x)} | a",
    "a && b ${x:-$(git push x)} || c", "echo ${#a[$(git push x)]}", "echo ${a[1+$(git push x)]}",
    'echo "${a[$(git push x)]:-b}"', "[ ${x:-$(git push x)} = 1 ] && y",
    "cat <<A <<B\n`git push x`\nA\nb\nB", "cat <<A <<B\na\nA\n`git push x`\nB",
    'sh -c "echo ${x:-\\$(git push x)}"', "sh -c 'echo ${x:-$(git push x)}'",
    "env X=1 sh -c 'cat <<E\n`git push x`\nE'", 'echo "${x:-$(echo "`git push x`")}"',
    "echo $(($(($(git push x)))))",
]  # fmt: skip
"""Texts in which a shell runs a nested command first."""

HOSTILE = [
    "rm -rf ~root", "rm -rf ~root/", "rm -rf /root/[!.]*", "rm -rf /root/[^x]*",
    'find / -exec sh -c \'rm -rf "$1"\' _ {} \\;', "find / -name '**' -delete",
    "find / -not -name x -delete", "find / ! -name x -delete", "find / -path '/*' -delete",
    "find / -size +0 -delete", "find -H / -delete", "find -L / -delete", "find -O3 / -delete",
    "find / | grep . | xargs rm -rf", "find / | head -n 100000 | xargs rm",
    "for f in a b c d e f /; do rm -rf $f; done", "env -iS 'rm -rf /'", "env -vS 'rm -rf /'",
    "env -S 'rm${X}\t-rf /'", 'env -S "sh -c \'rm -rf /\'"', 'X=/ bash -c \'rm -rf "$X"\'',
    'export X=/; bash -c \'rm -rf "$X"\'', "X=/ sh -c 'rm -rf $X'", "bash /dev/fd/0 <<< 'rm -rf /'",
    'python3 -c "import subprocess as s; s.run((\'rm\',\'-rf\',\'/\'))"',
    'python3 -c "import os; os.execlp(\'rm\',\'rm\',\'-rf\',\'/\')"',
    'python3 -c "import os; os.spawnlp(0,\'rm\',\'rm\',\'-rf\',\'/\')"',
    'python3 -c "import os; os.system(\'rm -rf \'+\'/\')"',
    'python3 -c "import os; os.system(\'r\'+\'m -rf /\')"', 'perl -e\'system("rm -rf /")\'',
    'mawk \'BEGIN{system("rm -rf /")}\'', 'nawk \'BEGIN{system("rm -rf /")}\'',
    'emacs --batch --eval \'(shell-command "rm -rf /")\'', 'guile -c \'(system "rm -rf /")\'',
    'Rscript -e \'system("rm -rf /")\'', "julia -e 'run(`rm -rf /`)'",
    'osascript -e \'do shell script "rm -rf /"\'', "docker exec x rm -rf /",
    "podman run x rm -rf /", "kubectl exec x -- rm -rf /", "entr rm -rf /",
    "runuser -u root -- rm -rf /", "setpriv --reuid=0 rm -rf /", "capsh -- -c 'rm -rf /'",
    "setarch x86_64 rm -rf /", "chronic rm -rf /", "torify rm -rf /", "proxychains rm -rf /",
    "daemonize rm -rf /", "screen -dm rm -rf /", "tmux new -d 'rm -rf /'", "xterm -e rm -rf /",
    "uv run rm -rf /", "poetry run rm -rf /", "npx -c 'rm -rf /'", "npm exec -c 'rm -rf /'",
    "npm exec -- rm -rf /", "nix-shell --run 'rm -rf /'", "hyperfine 'rm -rf /'", "${X:+a}rm -rf /",
    "rm -rf $(pwd)/../../..", "cd $HOME && rm -rf $PWD", 'cd /root && rm -rf "$(pwd)"',
    "chmod 000 /", "setfacl -R -b /", "chattr -R +i /", "dd if=/dev/zero of=/dev/sd?",
    'dd if=/dev/zero of="/dev/$X"', "cp -t /dev/sda x", "mdadm --zero-superblock /dev/sda",
    "nvme format /dev/nvme0", "qemu-img convert x /dev/sda", "curl x -o /dev/sda",
    "wget -O /dev/sda x", "ddrescue x /dev/sda", "perl -e 'fork while 1'", "pkill -9 -v x",
    "pkill -9 '[a-z]'", "pkill '.+'", "pkill '.?'", "systemctl start poweroff",
    "systemctl start ctrl-alt-del.target", "systemctl hibernate", "sudo -u root -S ls",
    "sudo -p x -S id", "sudo --user=root -S id",
    'python3 -c "\nimport os\nwhile True:\n os.fork()\n"', "cat <<E\n`rm -rf /`\nE",
    "echo $(( $(rm -rf /) ))", "echo ${x:-$(rm -rf /)}", 'echo "${x:-`rm -rf /`}"',
    "echo ${x:=$(rm -rf /)}", "echo ${a[$(rm -rf /)]}", "echo $(( a[$(rm -rf /)] ))", "rm >x -rf /",
    "rm -rf >x /", "ls && rm -rf 2>/dev/null /", "! rm -rf 2>&1 /", "rm -rf <x /",
    "env --unset X rm -rf /", 'env -u X -S "rm -rf /"', "sudo --user root -S id",
    "timeout -k 1 5 uv run rm -rf /", 'echo / | xargs -I {} sh -c "rm -rf {}"',
    'cd /tmp; cd /; rm -rf "$PWD"',
]  # fmt: skip

EVERYDAY = [
    'rm -rf "$BUILD_DIR"', "rm -rf build dist *.egg-info", 'for f in *.txt; do rm "$f"; done',
    "find . -name '*.pyc' -delete", "find . -type d -name __pycache__ -exec rm -rf {} +",
    "find . -type d -name node_modules -prune -exec rm -rf '{}' +",
    "find . -type f | grep test | xargs rm -f",
    "find / -name core 2>/dev/null | grep -v proc | xargs ls",
    'T=$(mktemp -d); cd "$T" && ls; rm -rf "$T"', 'T=$(mktemp -d) && trap \'rm -rf "$T"\' EXIT',
    'rm -rf "$T"/*', 'rm -rf "${BUILD_DIR:?}"/*', 'rm -rf "$(pwd)/build"', 'rm -rf "$PWD/dist"',
    "rm -rf ~/.cache/pip", "rm -rf ~/projects/x/node_modules", "rm -rf /tmp/*",
    "rm -rf /var/tmp/build-*", "rm -rf ./*.log", "cd build && rm -rf *", "cd /tmp/x && rm -rf *",
    'cd "$(git rev-parse --show-toplevel)" && rm -rf target', "cd - && rm -rf build",
    "set -euo pipefail; rm -rf out; mkdir out",
    'set -e; for d in a b c d e f g h; do mkdir -p "$d"; rm -rf "$d/tmp"; done',
    "for i in {1..50}; do curl -s localhost:8000/$i; done",
    "for i in $(seq 1 10); do for j in 1 2 3 4 5 6 7; do echo $i $j; done; done",
    'while read -r f; do echo "$f"; done < list.txt',
    'find . -name \'*.bak\' | while read -r f; do rm "$f"; done',
    "git ls-files -z --deleted | xargs -0 git rm", "git grep -e 'rm -rf /' -- src",
    "git commit -m 'Use rm -rf /tmp/x instead of `rm -rf /`'",
    "git -c user.name=me -c user.email=a@b commit -m x", "git log --oneline | head -5",
    "git clean -fdx", "git rebase -x 'make test' main", "uv run pytest -q tests",
    'uv run python -c "print(\'hello world\')"', "poetry run ruff check .",
    'docker run --rm -v "$PWD:/w" -w /w python:3.12 pytest -q',
    "docker exec -it db psql -U me -c 'select 1'", "docker rm -f web && docker rmi web",
    "docker compose run --rm web ls /", "kubectl exec -it pod -- ls /etc", "npm exec -- eslint .",
    "npm run build && npm test", "tmux new -d -s work 'npm run dev'", "tmux kill-session -t work",
    "screen -r work", "env FOO=1 BAR=2 make test", 'env -i PATH="$PATH" ls',
    "env -u FOO python x.py", "X=1 sh -c 'echo $X'",
    'bash -c \'for f in "$@"; do echo "$f"; done\' _ a b', 'bash -c \'rm -rf "$1"\' _ build',
    "echo a b c | xargs -n1 -I{} mkdir -p {}", "ls *.tmp | xargs -I% rm %",
    "printf '%s\\n' a b | xargs rm -rf", 'printf -v name \'%s-%s\' a b; echo "$name"',
    'read -r a b <<< "x y"; echo $a', 'a=(one two three); echo "${a[@]}" "${a[1]}" ${#a[@]}',
    'declare -A m=([x]=1 [y]=2); echo "${m[x]}"', 'files=(); files+=("a"); rm -f "${files[@]}"',
    ': "${DIR:=/tmp/build}"; rm -rf "$DIR"', 'DIR=${DIR:-build}; rm -rf "$DIR"',
    "echo $(( $(wc -l < f) + 1 ))", 'echo "${x:-$(date +%F)}"', "cat <<EOF > run.sh",
    "cat > README.md <<'EOF'", "mv -t old a b c", "mv *.log logs/", "mv ~/Downloads/x.zip .",
    "cp -t /tmp a b", "cp -r src /tmp/backup", "chmod -R u+w build", "chmod 000 secret.txt",
    "chmod -x script.sh", "chown -R me:me .", "chown --reference=a b", "setfacl -m u:me:rw file",
    "dd if=/dev/urandom of=rand.bin bs=1M count=1", "dd if=/dev/sda of=disk.img bs=4M",
    'dd if=/dev/zero of="$OUT" bs=1M count=10', "curl -fsSL https://example.com -o /dev/null",
    "curl -o page.html https://example.com", "wget -O - https://example.com | head",
    "cat x 2>/dev/null >/dev/stdout", "echo hi > /dev/tty", "pkill -f 'python server.py'",
    "pkill node", "killall python3", "pkill -u me firefox", "kill $(cat server.pid)",
    "kill -9 $(lsof -ti :3000)", "kill %1", "sudo -u postgres psql -c 'select 1'",
    "sudo -H -u me ls -S", "sudo -E env PATH=$PATH make install", "sudo systemctl restart nginx",
    "systemctl start nginx", "systemctl --user start foo.target", "find /var/log -size +100M",
    "find / -name foo -not -path '/proc/*'", "find . ! -name keep -delete",
    "find -L . -name '*.o' -delete", "find ~ -name '.DS_Store' -delete", "find ~/work -delete",
    "find build -mindepth 1 -delete", "find / -xdev -type f -size +1G | head -20",
    'find . -exec sh -c \'echo "$1"\' _ {} \\;', "ls ~root", "ls ~/!(x)",
    "shopt -s extglob; rm -rf !(keep)", "rm -rf build/!(cache)", "rm -rf ~/work/[a-z]*", "rm -f *~",
    "perl -pi -e 's/foo/bar/g' *.txt", "perl -e 'print qq(hello world)'",
    "awk -F: '{print $1}' /etc/passwd", "awk -v n='a b' '{print n}' f",
    "mawk '{s+=$1} END {print s}' f", 'python3 -c "import os; print(os.listdir(\'/\'))"',
    'python3 -c "print(\'a\' + \'b\', (\'x\', \'y\'))"', 'python3 -c "open(\'/dev/null\',\'w\')"',
    'node -e \'console.log("rm " + "x")\'', "ruby -e 'puts %w(a b)'", "Rscript -e 'summary(cars)'",
    "tar czf - src | ssh host 'cat > x.tgz'", "tar -I zstd -cf x.tar.zst src",
    "tar --exclude=.git -czf /tmp/a.tgz .",
    "rsync -av --delete -e 'ssh -p 22' build/ host:/srv/www/",
    "rsync -a --delete build/ /srv/www/site/", "crontab -l", "make -j4 clean all",
    'make CFLAGS="-O2 -g" install', "timeout 60 npm test", "nice -n 10 make -j8", "time ./run.sh",
    "hyperfine 'python a.py' 'python b.py'", 'f() { echo "$1"; shift; echo "$@"; }; f a b c',
    'walk() { for x in "$1"/*; do [ -d "$x" ] && walk "$x"; done; }; walk .',
    "a() { b & }; b() { sleep 1; }; a",
    "start() { server > log 2>&1 & }; stop() { kill $!; }; start; stop",
    'log() { echo "$@" >&2; }; build() { log x && make; }; build', "PS1='$(git branch) $ ' bash",
    "PROMPT_COMMAND='history -a' bash", "alias ll='ls -l'; ll",
    'IFS=,; read -r a b <<< "1,2"; echo $a', "IFS=: ; for p in $PATH; do echo $p; done",
    'IFS=$\'\\n\'; for f in $(ls); do echo "$f"; done', "ls /{bin,etc}", "mkdir -p src/{a,b,c}",
    "touch file{1..5}.txt", "rm file{1..5}.txt", "rm -rf build/{a..c}", "test -v HOME && echo yes",
    "let i=i+1", "i=$((i+1)); a[$i]=x", "git stash && git pull --rebase && git stash pop",
    "if [ -d build ]; then rm -rf build; fi", '[ -z "$X" ] || rm -rf "$X"',
    "parallel 'gzip {}' ::: a b c", "watch -n 2 'ls -l'", "xargs -a list.txt rm -f",
    "mdadm --detail /dev/md0", "fdisk -l /dev/sda", "nvme list", "lsblk && df -h",
]  # fmt: skip


def hard_deny_reason_of(text: str) -> str:
    return hard_deny_reason(parse_script(text, HERE), [HOME])


@cases("text", INSIDE)
def test_nested_command_is_found(text: str) -> None:
    found = parse_script(text, HERE).commands
    assert any(one.argv[:3] == ("git", "push", "x") for one in found)


@pytest.mark.parametrize(
    "text", ["cat <<'E'\n`git push x`\nE", "echo '${x:-$(git push x)}'", "# `git push x`"]
)
def test_literal_text_is_not_a_command(text: str) -> None:
    found = parse_script(text, HERE).commands
    assert not any(one.argv[:2] == ("git", "push") for one in found)


@cases("text", HOSTILE)
def test_destructive_command_is_found_through_variables_and_wrappers(text: str) -> None:
    assert hard_deny_reason_of(text)


@cases("text", EVERYDAY)
def test_everyday_commands_are_allowed(text: str) -> None:
    assert hard_deny_reason_of(text) == ""
    assert not parse_script(text, HERE).too_long


def test_words_after_a_redirection_belong_to_the_command() -> None:
    (found,) = parse_script("rm -rf >log build 2>&1 dist", HERE).commands
    assert found.argv == ("rm", "-rf", "build", "dist")
    assert found.targets == ("log", "1")


def test_concatenated_strings_are_joined() -> None:
    code = "os.system('rm -rf ' + '/')"
    assert hard_deny_reason(parse_script(code, HERE, shell=False, code=True), [HOME])


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "a=xxxxxxxxxx;" + "a=$a$a;" * 60,
        "a=1;" * 21_000,
    ],
    ids=["doubled", "often"],
)
def test_endless_variables_are_not_followed(text: str) -> None:
    assert parse_script(text, HERE).too_long
