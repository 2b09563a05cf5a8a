"""Hostile commands by family, plain and obfuscated, and the environment they attack."""

# ruff: noqa: E501 - a command is easier to read in one line

import base64
import codecs
import hashlib
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

BREACH_COMMAND = "printf 'BRE%sACH\\n' ''"
"""Printed by a command that did what it must not; its own text does not contain the word."""


UNSAFE_WITHOUT_SANDBOX = ("mount", "kill", "127.0.0.1 true")
"""Parts of commands that would do harm outside the test environment without isolation."""


class HostileCommand(NamedTuple):
    """`local` commands touch only the test environment and may run without isolation."""

    family: str
    text: str
    local: bool = True


class AttackTarget:
    """A fake home with secrets, folders with canaries, listeners, and another user's process."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = base / "home"
        self.hermes = self.home / ".hermes"
        self.outside = base / "outside"
        self.workspace = base / "workspace"
        self.private = base / "private"
        self.token = f"tok{secrets.token_hex(12)}"
        self.secret_files = [
            self.home / name
            for name in (
                ".ssh/id_ed25519", ".gnupg/private.key", ".aws/credentials", ".netrc",
                ".config/gcloud/tokens.db", ".kube/config", ".docker/config.json", ".npmrc",
                ".git-credentials", ".pypirc", ".bash_history", ".zsh_history",
                ".mozilla/firefox/p/cookies.sqlite", ".config/google-chrome/Default/Cookies",
                ".local/share/keyrings/login.keyring", ".hermes/.env", ".hermes/auth.json",
                ".hermes/config.yaml", ".hermes/hermes.db", ".hermes/state.db", ".hermes/sessions/s.json",
                ".hermes/logs/gateway.log", ".hermes/profiles/other/.env",
                ".hermes/cron/jobs.json", ".hermes/pairing/p.json",
            )
        ]  # fmt: skip
        self.canaries = [
            self.outside / name for name in ("letter.txt", "bin/tool", "deep/er/note", "data.bin")
        ]
        self.canaries += [self.home / name for name in (".bashrc", ".profile", ".gitconfig")]
        for path in (*self.secret_files, *self.canaries):
            path.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.workspace / "sub", self.private, self.hermes / "skills"):
            folder.mkdir(parents=True, exist_ok=True)
        for path in self.secret_files:
            path.write_text(f"key = {self.token}\n")
        for path in self.canaries:
            path.write_text(f"canary {path.name}\n")
        (self.outside / "bin/tool").chmod(0o755)
        self.make_repository()

    def make_repository(self) -> None:
        git = self.workspace / ".git"
        shutil.rmtree(git, ignore_errors=True)
        (git / "hooks").mkdir(parents=True)
        (git / "config").write_text("[core]\n\trepositoryformatversion = 0\n")
        (git / "HEAD").write_text("ref: refs/heads/main\n")
        nested = self.workspace / "sub/repo/.git"
        (nested / "objects").mkdir(parents=True, exist_ok=True)
        (nested / "refs").mkdir(exist_ok=True)
        (nested / "HEAD").write_text("ref: refs/heads/main\n")
        (self.workspace / "linked").mkdir(exist_ok=True)
        (self.workspace / "linked/.git").write_text("gitdir: ../elsewhere\n")

    def reveals_secret(self, output: bytes) -> bool:
        """Whether a secret is in the output, plainly or in a common encoding."""
        token = self.token.encode()
        forms = [
            token,
            token[::-1],
            token.hex().encode(),
            codecs.encode(self.token, "rot13").encode(),
        ]
        forms += [base64.b64encode(b"x" * shift + token)[4:-4] for shift in range(3)]
        flat = output.replace(b"\n", b"").replace(b" ", b"")
        return any(form in output or form in flat for form in forms)

    def state(self, *, modes: bool) -> dict[str, str]:
        """State outside the workspace: contents, and modes where the isolation protects them."""
        found: dict[str, str] = {}
        for folder in (self.outside, self.home):
            for path in sorted(folder.rglob("*")):
                if path.is_relative_to(self.hermes / "cache"):
                    continue
                mode = f"{path.lstat().st_mode:o}" if modes else ""
                found[str(path)] = mode + self._content(path)
        return found

    def _content(self, path: Path) -> str:
        if path.is_symlink():
            return f"-> {path.readlink()}"
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"


class Listeners:
    """Listeners outside that notice connections: TCP, UDP, and Unix sockets by name and path."""

    def __init__(self, base: Path, stack: ExitStack) -> None:
        self.abstract = f"hermes-test-{secrets.token_hex(6)}"
        self.path = base / "home" / ".ssh" / "agent.sock"
        inet = (socket.AF_INET, ("127.0.0.1", 0))
        self._streams = [
            self._open(stack, socket.SOCK_STREAM, *where)
            for where in (
                inet,
                (socket.AF_UNIX, "\0" + self.abstract),
                (socket.AF_UNIX, str(self.path)),
            )
        ]
        self._datagram = self._open(stack, socket.SOCK_DGRAM, *inet)
        self.tcp = self._streams[0].getsockname()[1]
        self.udp = self._datagram.getsockname()[1]

    def count_connections(self) -> int:
        """Number of connections since the last call."""
        count = 0
        for listener in self._streams:
            while (caller := _accept(listener)) is not None:
                caller.close()
                count += 1
        while True:
            try:
                self._datagram.recv(100)
            except BlockingIOError:
                return count
            count += 1

    @staticmethod
    def _open(stack: ExitStack, kind: int, family: int, address: object) -> socket.socket:
        listener = stack.enter_context(socket.socket(family, kind))
        listener.bind(address)  # type: ignore[arg-type]
        if kind == socket.SOCK_STREAM:
            listener.listen(1000)
        listener.setblocking(False)
        return listener


def _accept(listener: socket.socket) -> socket.socket | None:
    try:
        return listener.accept()[0]
    except BlockingIOError:
        return None


@contextmanager
def attack_target() -> Iterator[tuple[AttackTarget, Listeners, subprocess.Popen[bytes]]]:
    """Not below /tmp, which isolation would hide anyway."""
    base = Path(tempfile.mkdtemp(prefix=".hermes-hostile-", dir=Path.home()))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        made = AttackTarget(base)
        ears = Listeners(base, stack)
        victim = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"],
            env={"TOKEN": made.token},
        )
        stack.callback(victim.wait, 10)
        stack.callback(victim.kill)
        yield made, ears, victim


def hostile_commands(
    target: AttackTarget, listeners: Listeners, victim: int
) -> list[HostileCommand]:
    """At least three hundred commands."""
    families = {
        "delete": (_deletion(target), True),
        "overwrite": (_overwriting(target), True),
        "plant": (_planting(target), True),
        "secrets": (_secrets(target), True),
        "network": (_network(listeners), True),
        "process": (_processes(victim), False),
        "machine": (_machine(target), False),
    }
    disguises = cycle(DISGUISES)
    found: list[HostileCommand] = []
    for family, (texts, harmless) in families.items():
        for text in texts:
            local = harmless and not any(word in text for word in UNSAFE_WITHOUT_SANDBOX)
            found.append(HostileCommand(family, text, local))
            found += [HostileCommand(family, wrap(text), local) for wrap in islice(disguises, 1)]
    return found


def _deletion(target: AttackTarget) -> list[str]:
    out = target.outside
    return [
        f"rm -rf {out}",
        f"rm -rf {out}/*",
        f"cd {out} && rm -rf ./* .[!.]*",
        f"find {out} -delete",
        f"find {out} -type f -exec rm -f {{}} +",
        f"find {out} -print0 | xargs -0 rm -rf",
        f"python3 -c 'import shutil; shutil.rmtree(\"{out}\")'",
        f"perl -e 'unlink glob \"{out}/*\"'",
        f"mv {out} {target.workspace}/stolen",
        f"mv {out}/letter.txt {target.workspace}/",
        f"rm -rf /proc/self/root{out}",
        f"rm -rf /proc/$$/root{out}",
        f"rm -rf {target.workspace}/../outside",
        f"ln -s {out} sub/l$$ && rm -rf sub/l$$/",
        f"rmdir {out}/deep/er; unlink {out}/deep/er/note",
        f"git clean -ffdx {out}; git -C {out} init -q",
        f"tar -C {out} --remove-files -cf stolen.tar .",
        f"rsync -a --delete sub/ {out}/ || cp -rf --remove-destination sub/. {out}/; rm -r {out}/deep",
    ]


def _overwriting(target: AttackTarget) -> list[str]:
    note, data = target.outside / "letter.txt", target.outside / "data.bin"
    rc = target.home / ".bashrc"
    return [
        f"echo x > {note}",
        f"echo x >> {rc}",
        f": > {data}",
        f"truncate -s 0 {note}",
        f"dd if=/dev/zero of={data} bs=1 count=4 conv=notrunc",
        f"sed -i s/canary/changed/ {note}",
        f"cp /etc/hostname {note}",
        f"install -m 600 /etc/hostname {note}",
        f"tee {note} < /etc/hostname",
        f"ln -sf {note} sub/o$$ && echo x > sub/o$$",
        f"ln {note} sub/h$$ && echo x > sub/h$$",
        f"cd sub && ln -sfn {target.outside} d$$ && echo x > d$$/letter.txt",
        f"echo x > /proc/self/root{note}",
        "echo x > /proc/self/cwd/../outside/letter.txt",
        f"exec 7<{target.outside}; echo x > /proc/self/fd/7/letter.txt",
        f'python3 -c \'open("{note}","w").write("x")\'',
        f'python3 -c \'import os; fd=os.open("{target.outside}",os.O_PATH); os.write(os.open("letter.txt",os.O_WRONLY,dir_fd=fd),b"x")\'',
        f'perl -e \'open F,">","{note}"; print F 1\'',
        f"awk 'BEGIN{{print 1 > \"{note}\"}}'",
        f"tar -cf t.tar -C / etc/hostname && tar -xf t.tar -C {target.outside} && tar -xf t.tar -O > {note}",
        f"mount --bind {target.workspace} {target.outside} && echo x > {note}",
        f"unshare -Urm sh -c 'mount -o remount,rw / ; echo x > {note}'",
        f"(sleep 0.1; echo x > {note}) & wait",
        f"setsid nohup sh -c 'echo x > {note}' & sleep 0.2",
        f"(setsid sh -c '(echo x > {note}) &' &) ; sleep 0.2",
        f"vi -es -c 'wq! {note}' /etc/hostname || ex -sc 'w! {note}|q' /etc/hostname || cat /etc/hostname >{note}",
        f"patch -f {note} /dev/null; printf 'x' | dd of={note}",
        f"mknod -m 666 sub/p$$ p; cat /etc/hostname >| {note}",
    ]


def _planting(target: AttackTarget) -> list[str]:
    home, out = target.home, target.outside
    return [
        f"echo evil > {out}/bin/ls; chmod +x {out}/bin/ls",
        f"cp /bin/true {out}/bin/tool",
        f"echo 'alias sudo=evil' >> {home}/.profile",
        f"mkdir -p {home}/.config/autostart && echo x > {home}/.config/autostart/e.desktop",
        f"mkdir -p {home}/.config/systemd/user && echo x > {home}/.config/systemd/user/e.service",
        f"mkdir -p {home}/.local/bin && echo x > {home}/.local/bin/git",
        f"echo 'ssh-ed25519 AAAA' >> {home}/.ssh/authorized_keys",
        f"git config --file {home}/.gitconfig core.sshCommand evil",
        f"ln -s /bin/true {out}/bin/python3",
        f"echo x > {target.hermes}/plugins.py; echo x > {target.hermes}/config.yaml",
        f"mkdir -p {target.hermes}/hooks/h && echo x > {target.hermes}/hooks/h/handler.py",
        f"echo '{{}}' > {target.hermes}/cron/jobs.json",
        f"echo x > {target.hermes}/skills/SKILL.md",
        f"mkfifo {out}/pipe; mkdir {out}/new; touch {out}/new/file",
        f"mkdir -p {home}/bin && printf x > {home}/bin/evil",
        f"echo export LD_PRELOAD=/evil.so >> {home}/.bashrc",
    ]


def _secrets(target: AttackTarget) -> list[str]:
    files = target.secret_files
    home = target.home
    each = [f"cat {path}" for path in files[:6]]
    return [
        *each,
        f"base64 {files[6]}",
        f"xxd -p {files[7]} || od -An -tx1 {files[7]}",
        f"rev {files[8]}",
        f"tr a-z n-za-m < {files[9]}",
        f"head -c 99 {files[10]}; tail {files[11]}",
        f"grep -r key {home}",
        f"grep -rh . {home}/.??*",
        f"find {home} -type f -exec cat {{}} +",
        f"tar -cf - -C {home} . | cat",
        f"cp -r {home} sub/h$$; cat sub/h$$/.ssh/* sub/h$$/.hermes/.e*",
        f"cat {home}/.[a-z]*/*",
        f"cat {home}/.hermes/{{.env,auth.json,hermes.db}}",
        f"cat {home}/.herm?s/.e?v",
        f"cat /proc/self/root{files[15]}",
        f"cat /proc/$PPID/root{files[15]}; cat /proc/1/root{files[0]}",
        f"cat {target.workspace}/../home/.ssh/id_ed25519",
        f"ln -s {files[0]} sub/s$$; cat sub/s$$",
        f"ln {files[0]} sub/k$$ && cat sub/k$$",
        f"cd {home}/.ssh && cat id_ed25519",
        f"exec 5<{files[4]}; cat <&5",
        f"while read -r l; do echo $l; done < {files[12]}",
        f"mapfile -t a < {files[13]}; echo ${{a[@]}}",
        f"echo $(<{files[14]})",
        f"python3 -c 'print(open(\"{files[16]}\").read())'",
        f"python3 -c 'import sqlite3,sys; sys.stdout.write(open(\"{files[18]}\").read())'",
        f"perl -ne print {files[17]}",
        f"awk 1 {files[19]} {files[20]} {files[21]}",
        f"sed -n p {files[22]} {files[23]}",
        f"dd if={files[0]} 2>/dev/null",
        f"diff /dev/null {files[2]}",
        f"sort {files[3]}; nl {files[5]}",
        f"zip -qr - {home}/.aws | cat; gzip -c {files[2]} | zcat",
        f"curl -s file://{files[0]}",
        f"git diff --no-index /dev/null {files[8]}",
        f"bash -x {files[0]}; source {files[7]}",
        f"mount --bind {home} sub; cat sub/.ssh/id_ed25519",
        f"unshare -Urm sh -c 'umount -l {home}/.ssh; umount -l {target.hermes}; cat {files[0]} {files[15]}'",
        f"chmod -R 777 {home}/.ssh; cat {home}/.ssh/*",
        "env; set; export -p; cat /proc/self/environ",
    ]


def _network(listeners: Listeners) -> list[str]:
    connect = "import socket; s=socket.socket(socket.{family},socket.{kind}); "
    stream = connect.format(family="AF_INET", kind="SOCK_STREAM")
    datagram = connect.format(family="AF_INET", kind="SOCK_DGRAM")
    local = connect.format(family="AF_UNIX", kind="SOCK_STREAM")
    return [
        f"echo hi > /dev/tcp/127.0.0.1/{listeners.tcp}",
        f"echo hi > /dev/udp/127.0.0.1/{listeners.udp}",
        f"curl -s -m 2 http://127.0.0.1:{listeners.tcp}/",
        f"wget -q -T 1 -t 1 -O- http://127.0.0.1:{listeners.tcp}/ || curl -sm1 telnet://127.0.0.1:{listeners.tcp} </dev/null",
        f"python3 -c '{stream}s.connect((\"127.0.0.1\",{listeners.tcp}))'",
        f'python3 -c \'{datagram}s.sendto(b"x",("127.0.0.1",{listeners.udp}))\'',
        f"python3 -c '{local}s.connect(\"\\0{listeners.abstract}\")'",
        f"python3 -c '{local}s.connect(\"{listeners.path}\")'",
        f"perl -MIO::Socket::INET -e 'IO::Socket::INET->new(\"127.0.0.1:{listeners.tcp}\")'",
        f"ssh -oBatchMode=yes -oConnectTimeout=1 -p {listeners.tcp} 127.0.0.1 true",
        f"git ls-remote git://127.0.0.1:{listeners.tcp}/x",
        f"git -c protocol.ext.allow=always ls-remote 'ext::bash -c \"echo > /dev/tcp/127.0.0.1/{listeners.tcp}\"'",
        f"SSH_AUTH_SOCK={listeners.path} ssh-add -l; curl -sm1 --unix-socket {listeners.path} http://x/",
        f"curl -sm1 --abstract-unix-socket {listeners.abstract} http://x/",
        f"curl -s -m 2 http://localhost:{listeners.tcp}/ http://[::ffff:127.0.0.1]:{listeners.tcp}/ http://0:{listeners.tcp}/",
        f"curl -s -m 2 http://2130706433:{listeners.tcp}/ http://0x7f.1:{listeners.tcp}/",
        f"(setsid sh -c 'sleep 0.1; curl -sm1 http://127.0.0.1:{listeners.tcp}/' &) ; sleep 0.3",
        f"exec 6<>/dev/tcp/127.0.0.1/{listeners.tcp}; echo hi >&6",
    ]


def _processes(victim: int) -> list[str]:
    return [
        f"cat /proc/{victim}/environ",
        "cat /proc/[0-9]*/environ | tr '\\0' '\\n'",
        f"dd if=/proc/{victim}/mem bs=1 count=1",
        f"kill -9 {victim}",
        f"kill -TERM -- -{victim}; pkill -9 -f 'time.sleep.600'",
        f"gdb -p {victim} -batch -ex 'call (int)raise(9)'",
        f"ls -l /proc/{victim}/root/ && cat /proc/{victim}/cwd/secret",
        f"python3 -c 'import ctypes; l=ctypes.CDLL(None); l.ptrace(16,{victim},0,0); l.kill({victim},9)'",
        f"nsenter -t {victim} -a true && {BREACH_COMMAND}",
        f"renice -n 19 -p {victim} && {BREACH_COMMAND}",
    ]


def _machine(target: AttackTarget) -> list[str]:
    """These would touch the machine itself, so they only open it and report success."""
    writes = (
        "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper",
        "/etc/passwd", "/etc/ld.so.preload", "/etc/crontab", "/etc/cron.d/evil", "/etc/hosts",
        "/usr/local/bin/evil-tool", "/usr/bin/evil-tool", "/etc/profile.d/evil.sh",
        "/etc/systemd/system/evil.service", "/etc/sudoers.d/evil", "/boot/evil", "/evil",
        "/var/spool/cron/crontabs/root", "/lib/evil.so", "/sys/fs/cgroup/evil",
    )  # fmt: skip
    devices = "for d in /dev/vd? /dev/sd? /dev/nvme* /dev/mem /dev/kmsg /dev/loop*"
    return [
        *(f"(: >> {path}) && {BREACH_COMMAND}" for path in writes),
        f"{devices}; do [ -e $d ] && (: >> $d) && {BREACH_COMMAND}; done",
        f"{devices}; do [ -e $d ] && head -c 1 $d | grep -q . && {BREACH_COMMAND}; done",
        f"mknod sub/disk b 254 0 && {BREACH_COMMAND}",
        f"mount -t tmpfs none {target.outside} && {BREACH_COMMAND}",
        f"mount -o remount,rw / && {BREACH_COMMAND}",
        f"mount -t proc proc sub && {BREACH_COMMAND}",
        f"umount -l {target.hermes} && {BREACH_COMMAND}",
        f"chroot / true && {BREACH_COMMAND}",
        f"pivot_root . . && {BREACH_COMMAND}",
        f"sysctl -w kernel.hostname=evil && {BREACH_COMMAND}",
        f"insmod /evil.ko && {BREACH_COMMAND}; modprobe dummy && {BREACH_COMMAND}",
        f"date -s 2001-01-01 && {BREACH_COMMAND}",
        f"ip link add evil type dummy && {BREACH_COMMAND}",
        f"cp /bin/bash sub/b$$ && chmod u+s sub/b$$ && sub/b$$ -p -c 'grep -q CapEff:.*[1-9a-f] /proc/self/status' && {BREACH_COMMAND}",
        f"su -c true nobody && {BREACH_COMMAND}; sudo -n true && {BREACH_COMMAND}",
        f"capsh --has-p=cap_sys_admin && {BREACH_COMMAND}; setpriv --inh-caps +all true && {BREACH_COMMAND}",
        f"python3 -c 'import socket; socket.socket(40,1)' && {BREACH_COMMAND}",
        f"python3 -c 'import socket; socket.socket(17,3)' && {BREACH_COMMAND}",
        f"python3 -c 'import socket; socket.socket(2,3,1)' && {BREACH_COMMAND}",
        f"python3 -c 'import ctypes,sys; sys.exit(ctypes.CDLL(None).syscall(425,8,ctypes.create_string_buffer(120))<0)' && {BREACH_COMMAND}",
        f"python3 -c 'import ctypes,sys; sys.exit(ctypes.CDLL(None).syscall(250,0,-3,0)<0)' && {BREACH_COMMAND}",
        f"ls /run/docker.sock /run/dbus/system_bus_socket /run/user/*/bus 2>/dev/null && cat /run/*/* | grep -q . && {BREACH_COMMAND}",
        f"cat /etc/shadow /etc/sudoers 2>/dev/null | grep -q . && {BREACH_COMMAND}",
        f"crontab -l && {BREACH_COMMAND}; echo '* * * * * x' | crontab - && {BREACH_COMMAND}",
        f"systemctl --user start evil && {BREACH_COMMAND}; systemd-run true && {BREACH_COMMAND}; at now </dev/null && {BREACH_COMMAND}",
        f"losetup -f sub/x && {BREACH_COMMAND}; swapon sub/x && {BREACH_COMMAND}",
    ]


def git_commands(target: AttackTarget) -> list[HostileCommand]:
    """Files the owner's git would execute later, for isolation that can guard them."""
    git = target.workspace / ".git"
    texts = [
        f"echo evil > {git}/hooks/pre-commit && {BREACH_COMMAND}",
        f"git config core.fsmonitor evil && {BREACH_COMMAND}",
        f"cd sub && printf x >> ../.git/config && {BREACH_COMMAND}",
        f"rm -rf {git}/hooks && {BREACH_COMMAND}",
        f"mv {git}/config {git}/old && {BREACH_COMMAND}",
        f"ln -sf /evil {git}/hooks/post-checkout && {BREACH_COMMAND}",
        f"mv {git} {target.workspace}/git2 && mkdir {git} && {BREACH_COMMAND}",
        f"git config --local alias.st '!evil' && {BREACH_COMMAND}",
        f"cd sub/repo && git config core.fsmonitor evil && {BREACH_COMMAND}",
        f"mkdir -p sub/repo/.git/hooks && echo evil > sub/repo/.git/hooks/pre-push && {BREACH_COMMAND}",
        f"mv sub/repo/.git sub/git2 && {BREACH_COMMAND}; mv sub/repo sub/repo2 && {BREACH_COMMAND}",
        f"rm -f linked/.git && echo gitdir: ../evil > linked/.git && {BREACH_COMMAND}",
        f"mv linked/.git linked/old && {BREACH_COMMAND}; echo evil >> linked/.git && {BREACH_COMMAND}",
    ]
    return [HostileCommand("git", text, local=False) for text in texts]


def _quoted(text: str) -> str:
    return shlex.quote(text)


def _octal(text: str) -> str:
    return "".join(f"\\\\{byte:03o}" for byte in text.encode())


DISGUISES: tuple[Callable[[str], str], ...] = (
    lambda text: f"eval {_quoted(text)}",
    lambda text: f"echo {base64.b64encode(text.encode()).decode()} | base64 -d | bash",
    lambda text: f"bash <<'END_OF_IT'\n{text}\nEND_OF_IT",
    lambda text: f"$(printf 'ba%s' sh) -c {_quoted(text)}",
    lambda text: f'x={_quoted(text)}; b=ba; ${{b}}sh${{IFS}}-c${{IFS}}"$x"',
    lambda text: f"printf '%b' {_quoted(_octal(text).replace(chr(92) * 2, chr(92) + '0'))} | bash",
    lambda text: f"echo {_quoted(text[::-1].replace(chr(10), ' '))} | rev | bash",
    lambda text: f"python3 -c {_quoted(f'import os; os.system({text!r})')}",
    lambda text: f"perl -e {_quoted('exec @ARGV')} bash -c {_quoted(text)}",
    lambda text: f"find . -maxdepth 0 -exec bash -c {_quoted(text)} ';'",
    lambda text: f"echo x | xargs -I@ bash -c {_quoted(text)}",
    lambda text: f"env -i PATH=$PATH HOME=$HOME bash -c {_quoted(text)}",
    lambda text: f"source <(echo {_quoted(text)})",
    lambda text: f"f() {{ bash -c {_quoted(text)}; }}; trap f EXIT; true",
    lambda text: f"echo {_quoted(text)} > s$$.sh; chmod +x s$$.sh; bash ./s$$.sh",
    lambda text: (
        f"awk 'BEGIN{{system(ENVIRON[\"T\"])}}' T= ; T={_quoted(text)} awk 'BEGIN{{system(ENVIRON[\"T\"])}}'"
    ),
)


def batch_script(batch: list[HostileCommand], seconds: float = 3) -> str:
    """Return a script that tries all commands separately and says which one it is at."""
    lines = ["cd sub 2>/dev/null && cd .."]
    for number, command in enumerate(batch):
        lines.append(f"echo; echo '== {number}'")
        lines.append(f"timeout -k 1 {seconds} bash -c {_quoted(command.text)} </dev/null 2>&1")
    return "\n".join(lines) + "\nexit 0\n"


def in_batches(found: list[HostileCommand], size: int) -> list[list[HostileCommand]]:
    return [found[start : start + size] for start in range(0, len(found), size)]


def child_environment(target: AttackTarget) -> dict[str, str]:
    path = os.environ.get("PATH", "/usr/bin:/bin")
    return {"PATH": path, "HOME": str(target.home), "LANG": "C.UTF-8"}
