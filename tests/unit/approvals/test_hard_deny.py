"""The hard-deny list in many spellings, and ordinary commands it must not match."""

import base64

import pytest

from hermes.approvals.shell_commands import ShellContext, parse_script
from hermes.approvals.shell_hints import hard_deny_reason
from support.cases import cases

HOME = "/home/me"
HERE = ShellContext("/home/me/work", HOME)


def hard_deny_reason_of(text: str) -> str:
    return hard_deny_reason(parse_script(text, HERE), [HOME])


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


HOSTILE = [
    # text that does not parse
    "for d in a; do rm -rf /", "if true; then rm -rf ~", "{ rm -rf /etc", "rm -rf / )",
    # functions and aliases
    "f(){ cd /; }; f; rm -rf *",
    # what one finds and the other removes
    "find / -type f -print0 | xargs -0 rm -f", "find ~ | xargs rm",
    "find / | sort | xargs -n1 rm -f",
    "cd /; find . -print0 | xargs -0 shred -u",
    # programs in other languages
    'python3 -c "import shutil, pathlib; shutil.rmtree(pathlib.Path.home())"',
    "python3 -c \"import shutil, os; shutil.rmtree(os.path.expanduser('~'))\"",
    # plain
    "rm -rf /", "rm -fr /", "rm -r -f /", "rm -R /", "rm --recursive --force /", "rm -rf /*",
    "rm -rf //", "rm -rf /.", "rm -rf /./", "rm -rf /../", "rm -rf /bin/..",
    "rm -rf / --no-preserve-root",
    "rm --no-preserve-root -rf x", "rm -rf -- /", "rm -rf /etc", "rm -rf /usr", "rm -rf /var",
    "rm -rf /bin /sbin",
    "rm -rf /boot", "rm -rf /lib", "rm -rf /home", "rm -rf /root", "rm -rf /opt", "rm -rf /etc/*",
    "rm -rf /usr/*",
    "rm -rf /usr/bin", "rm -rf /e*", "rm -rf /[a-z]*", "rm -rf /???", "rm -rf ~", "rm -rf ~/",
    "rm -rf ~/*",
    "rm -rf $HOME", "rm -rf ${HOME}", 'rm -rf "$HOME"', 'rm -rf "${HOME}/"', "rm -rf $HOME/*",
    "rm -rf ${HOME:?}/*",
    "rm -rf /home/me", "rm -rf /home/other", "rm -rf ..", "rm -rf ../", "rm -rf ../*",
    "rm -rf ../../me",
    "rm -rf /home/me/work/..", "rm -rvf /", "rm -rfv / tmp", "rm -rf ./x / ./y", "rm --rec --fo /",
    # quoting and escaping
    "r\\m -rf /", "r''m -rf /", "r\"\"m -rf /", "'rm' -rf /", '"rm" -rf /', "\\rm -rf /",
    "r'm' '-rf' '/'",
    "rm -r''f /", "rm -\"rf\" /", "rm -rf '/'", 'rm -rf "/"', "rm -rf \\/", "$'rm' -rf /",
    "$'\\x72\\x6d' -rf /",
    "$'\\162\\155' -rf /", "$'\\u0072m' -rf $'\\x2f'", "rm -rf $'/'", "r\\\nm -rf /",
    "rm \\\n -rf \\\n /",
    # paths of programs
    "/bin/rm -rf /", "/usr/bin/rm -rf /", "/bin/../bin/rm -rf /", "/b?n/rm -rf /", "/bin/r? -rf /",
    "/bin/r* -rf /",
    "/bin/[r]m -rf /", "./../../../bin/rm -rf /",
    # variables
    "X=rm; $X -rf /", "X=rm Y=-rf; $X $Y /", "X='rm -rf /'; $X", "A=r B=m; $A$B -rf /",
    "A=r; ${A}m -rf /",
    "D=/; rm -rf $D", 'D=/; rm -rf "${D}"', "rm -rf ${X:-/}", "rm -rf ${X-/etc}", "${X:-rm} -rf /",
    "${0/x/r}m -rf /",
    "r${X}m -rf /", "r$@m -rf /", "r$*m -rf /", "rm${IFS}-rf${IFS}/", "X=xrm; ${X#x} -rf /",
    "X=rmx; ${X%x} -rf /",
    "X=RM; ${X,,} -rf /", "X=axm; ${X/ax/r} -rf /", "X=abrm; ${X:2} -rf /",
    "Y=rm X=Y; ${!X} -rf /", "export X=rm; $X -rf /",
    "x=(rm -rf /); \"${x[@]}\"", "for i in rm; do $i -rf /; done",
    "for d in / ; do rm -rf $d; done",
    "rm -rf {/,/tmp/x}", "rm -{r,f} /", "rm -rf /$UNSET",
    # substitutions
    "$(echo rm) -rf /", "`echo rm` -rf /", "$(printf rm) -rf /",
    "rm -rf $(echo /)", "rm $(echo -rf) /",
    "$(echo mr | rev) -rf /", "$(echo sm | tr s r) -rf /",
    f"$(echo {encoded('rm')} | base64 -d) -rf /", "$(printf '\\x72m') -rf /",
    "rm -rf `printf '\\57'`",
    # places
    "cd / && rm -rf *", "cd /; rm -rf .", "cd / ; rm -rf ./*", "cd && rm -rf *",
    "cd ~ && rm -rf .", "cd .. && rm -rf *",
    "pushd /etc; rm -rf *", "(cd / && rm -rf *)", "cd /usr && cd .. && rm -rf *",
    "cd $HOME; rm -rf ./*",
    # behind operators and in blocks
    "true && rm -rf /", "false || rm -rf /", "ls; rm -rf /", "ls & rm -rf /", "ls | rm -rf /",
    "! rm -rf /", "{ rm -rf /; }",
    "( rm -rf / )", "if true; then rm -rf /; fi", "while true; do rm -rf /; done",
    "case x in *) rm -rf /;; esac",
    "f() { rm -rf /; }; f", "function f { rm -rf /; }", "echo $(rm -rf /)", "echo `rm -rf /`",
    "echo \"$(rm -rf /)\"",
    "cat <(rm -rf /)", "x=$(rm -rf /)", "ls # comment\nrm -rf /", "ls\nrm -rf /", "rm -rf / &",
    "coproc rm -rf /", "time rm -rf /",
    # wrappers
    "sudo rm -rf /", "sudo -u root rm -rf /", "sudo -E -- rm -rf /", "/usr/bin/sudo rm -rf /",
    "doas rm -rf /", "env rm -rf /",
    "env A=b rm -rf /", "env -i rm -rf /", "env -S 'rm -rf /'", "nice -n 10 rm -rf /",
    "nohup rm -rf /", "setsid rm -rf /",
    "timeout 5 rm -rf /", "timeout -s KILL 5 rm -rf /", "stdbuf -oL rm -rf /", "command rm -rf /",
    "builtin command rm -rf /",
    "exec rm -rf /", "busybox rm -rf /", "chroot / rm -rf /", "strace -f rm -rf /",
    "ionice -c 3 rm -rf /", "A=b rm -rf /",
    "sudo env A=b nice -n 5 nohup rm -rf /", "xargs rm -rf /", "echo / | xargs rm -rf",
    "echo / | xargs -I{} rm -rf /",
    "printf '/\\n' | xargs rm -rf", "echo '-rf /' | xargs rm", "sh -c 'rm -rf /'",
    'bash -c "rm -rf /"', "bash -lc 'rm -rf /'",
    "zsh -c 'rm -rf /'", "sh -c \"sh -c 'rm -rf /'\"", "sudo bash -c 'rm -rf /'", "eval rm -rf /",
    "eval 'rm -rf /'",
    "eval \"r\"\"m -rf /\"", "eval $(echo rm -rf /)", "su -c 'rm -rf /'", "su root -c 'rm -rf /'",
    "script -c 'rm -rf /' /dev/null",
    "ssh host 'rm -rf /'", "ssh host rm -rf /", "trap 'rm -rf /' EXIT", "alias x='rm -rf /'",
    "watch 'rm -rf /'",
    "parallel rm -rf ::: /", "flock /tmp/l rm -rf /", "flock /tmp/l -c 'rm -rf /'",
    "echo 'rm -rf /' | at now",
    # fed to a shell
    "echo 'rm -rf /' | sh", "echo rm -rf / | bash", "printf 'rm -rf /' | sh -s",
    "bash <<< 'rm -rf /'", "bash <<EOF\nrm -rf /\nEOF",
    "sh <<'EOF'\nrm -rf /\nEOF", "cat <<'E' | sh\nrm -rf /\nE",
    "bash <(echo rm -rf /)", "source <(echo 'rm -rf /')", ". <(echo 'rm -rf /')",
    "echo 'sn -sg /' | tr 'a-z' 'n-za-m' | cat; rm -rf /",
    # other languages
    "python3 -c \"import os; os.system('rm -rf /')\"",
    "python -c 'import shutil; shutil.rmtree(\"/\")'",
    "python3 -c \"import subprocess; subprocess.run(['rm','-rf','/'])\"",
    "perl -e 'system(\"rm -rf /\")'",
    "ruby -e 'system \"rm -rf /\"'", "node -e 'require(\"child_process\").execSync(\"rm -rf /\")'",
    "node -e 'fs.rmSync(\"/\", {recursive: true})'", "php -r 'system(\"rm -rf /\");'",
    "awk 'BEGIN{system(\"rm -rf /\")}'",
    "python3 <<'E'\nimport os\nos.system('rm -rf /')\nE",
    # find, mv, rsync, chmod
    "find / -delete", "find / -type f -delete", "find / -exec rm -rf {} +",
    "find / -exec rm -rf {} \\;", "find ~ -delete",
    "find / -name '*' -delete", "find /etc -exec shred {} \\;", "find . -exec rm -rf / \\;",
    "mv / /dev/null", "mv ~ /tmp/x",
    "mv /etc /tmp", "mv /* /dev/null", "rsync -a --delete /tmp/empty/ /",
    "rsync -a --delete-after x/ ~/", "chmod -R 777 /",
    "chmod -R 000 /etc", "chown -R me /", "chown -R nobody:nobody /usr", "sudo chmod -R 0 /*",
    # disks
    "mkfs.ext4 /dev/sda1", "mkfs -t ext4 /dev/sda", "mke2fs /dev/sdb",
    "sudo mkfs.xfs -f /dev/nvme0n1", "wipefs -a /dev/sda",
    "dd if=/dev/zero of=/dev/sda", "dd of=/dev/nvme0n1 if=x bs=1M", "dd if=x of='/dev/sd'a",
    "cat x > /dev/sda", "echo > /dev/vda",
    ": > /dev/sda1", "> /dev/sda", "cat x >> /dev/mmcblk0", "tee /dev/sda < x", "cp x /dev/sda",
    "shred /dev/sda",
    "echo x | sudo tee /dev/sda", "cat x >/dev/../dev/sda", "truncate -s 0 /dev/sda",
    "blkdiscard /dev/sda",
    "parted /dev/sda mklabel gpt", "sgdisk -Z /dev/sda", "cryptsetup luksFormat /dev/sda",
    "D=/dev/sda; dd if=x of=$D",
    "dd if=x of=/dev/disk/by-id/y", "exec 3>/dev/sda",
    # processes and power
    ":(){ :|:& };:", ":(){ : | : & }; :", "b(){ b|b& };b", "f(){ f & f; }; f", "kill -9 -1",
    "kill -KILL -1", "kill -- -1",
    "kill -s KILL -1", "kill -1", "sudo kill -9 -1", "killall5", "pkill -9 .", "pkill -f ''",
    "shutdown -h now", "shutdown", "reboot",
    "sudo reboot", "/sbin/reboot", "halt", "poweroff", "init 0", "init 6", "telinit 6",
    "systemctl reboot", "systemctl poweroff",
    "sudo systemctl --force halt", "systemctl isolate poweroff.target", "loginctl reboot",
    "echo b > /proc/sysrq-trigger",
    "echo o | sudo tee /proc/sysrq-trigger", "busybox poweroff", "sh -c reboot",
    "nohup sh -c 'sleep 5; reboot' &", "r''eboot", "$(echo reboot)",
    "echo pw | sudo -S ls",
]  # fmt: skip

HARMLESS = [
    "for d in a; do rm -rf build", "find ~ | grep '.pyc$' | xargs rm",
    "find / | grep core | sort | xargs rm -f",
    'f(){ rm -rf "$1"; }; f build', "alias ll='ls -l'; ll /", "alias ls='ls -a'; ls",
    "f(){ f2; }; f2(){ ls; }; f /", "find / -name '*.pyc' -print0 | xargs -0 rm -f",
    "find . -type f | xargs rm", "find / -type f; ls | xargs rm", "find / | xargs ls",
    "sed -n 's/e /x/p' f",
    "sed -e 's/the rm/x/' f",
    'python3 -c "import shutil, pathlib; shutil.rmtree(pathlib.Path.home() / \'x\')"',
    "python3 -c \"import os\nfor r, d, f in os.walk('/'):\n print(f)\"",
    "python3 -c \"import os\nfor r, d, f in os.walk('/w/build'):\n os.remove(r)\"",
    "rm -rf build", "rm -rf ./dist node_modules", "rm -rf /tmp/x", "rm -rf ~/work/build",
    "rm -rf $HOME/work/x", "rm -rf *.pyc",
    "rm file", "rm -f /tmp/a", "echo rm -rf /", "echo 'rm -rf /'", "grep -r 'rm -rf /' .",
    "git commit -m 'rm -rf / is bad'",
    "find . -name '*.pyc' -delete", "find . -delete", "find /var/log -name '*.gz' -delete", "ls /",
    "cat /etc/passwd", "dd if=a of=b",
    "cat x > /dev/null", "echo hi > /dev/stderr", "kill 123", "kill -9 123", "kill -1 123",
    "kill -HUP 1", "pkill -f myserver",
    "systemctl status", "systemctl restart nginx", "shutdown -c", "init", "python3 -c 'print(1)'",
    "python3 -c 'import shutil; shutil.rmtree(\"build\")'",
    "chmod -R 755 build", "chmod +x run.sh", "chown me file", "mv a b", "mv build ~/old",
    "rsync -a --delete src/ dst/", "sudo ls",
    "f() { echo hi; }; f", "fact() { if [ $1 -gt 1 ]; then fact $(( $1 - 1 )); fi; }",
    "cd / && ls", "make clean", "npm run reboot-test",
    "rm -rf \"$TMPDIR/x\"", "rm -rf \"$X\"", "for f in *.o; do rm $f; done",
    "docker run --rm -it x", "tar xf a.tar -C /tmp", "cp a b",
    "man shutdown", "which reboot", "ls reboot", "cat mkfs.txt", "git rm -r old",
    "rm -rf /home/me/work", "rm -rf .venv/*",
]  # fmt: skip


@cases("text", HOSTILE)
def test_destructive_command_is_denied_in_every_spelling(text: str) -> None:
    assert hard_deny_reason_of(text)


@cases("text", HARMLESS)
def test_ordinary_command_is_not_hard_denied(text: str) -> None:
    assert hard_deny_reason_of(text) == ""


def test_table_is_large_and_has_no_duplicates() -> None:
    assert len(set(HOSTILE)) == len(HOSTILE) >= 250


@pytest.mark.slow
def test_huge_text_is_analyzed_in_bounded_time() -> None:
    assert parse_script("echo a; " * 20_000, HERE).too_long
    assert hard_deny_reason_of("$(" * 3000 + "rm -rf /") in {"", "it would delete /"}
