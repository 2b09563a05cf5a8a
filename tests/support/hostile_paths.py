"""Paths used in attempts to leave the workspace, and the files they are tried on."""

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

SECRET = "canary-secret-8093"
PLAIN = "canary-plain-5521\n"

FileState = dict[str, tuple[int, ...] | str]


class TrapWorkspace:
    """A workspace full of traps, with canaries around it that must not be touched.

    `closed` are files that must not even be read.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.work = self.home / "work"
        self.outside = root / "outside"
        self.hermes = self.home / ".hermes"
        for folder in (self.work, self.outside / "deep", self.hermes / "vault"):
            folder.mkdir(parents=True)
        self.closed = [
            self.hermes / ".env",
            self.hermes / "hermes.db",
            self.hermes / "state.db",
            self.hermes / "vault" / "key",
        ]
        self.open = [self.outside / "plain.txt", self.outside / "deep" / "x", self.home / ".bashrc"]
        for path in self.closed:
            path.write_text(SECRET)
        for path in self.open:
            path.write_text(PLAIN)
        (self.work / "mine.txt").write_text("mine\n")
        (self.work / "sub").mkdir()
        self.protected = [self.hermes / ".env*", self.hermes / "*.db", self.hermes / "vault"]
        self.handles = [os.open(path, os.O_RDONLY) for path in (*self.closed, *self.open)]
        self.handles += [os.open(path, os.O_RDONLY) for path in (root, self.outside, self.hermes)]
        self._socket = socket.socket(socket.AF_UNIX)

    @property
    def canaries(self) -> list[Path]:
        return [*self.closed, *self.open]

    def close(self) -> None:
        for handle in self.handles:
            os.close(handle)
        self._socket.close()
        self._unfold(self.work / "d")

    def _unfold(self, deep: Path) -> None:
        """Remove deeply nested folders one by one, since recursion would be too deep."""
        while deep.exists():
            inner = deep / deep.name
            if inner.exists():
                inner.rename(deep.with_name("unfolded"))
            shutil.rmtree(deep)
            if inner.name and deep.with_name("unfolded").exists():
                deep.with_name("unfolded").rename(deep)

    def state(self) -> FileState:
        """Everything around the workspace: names, contents, owners, times."""
        found: FileState = {}
        for folder, folders, files in os.walk(self.root):
            if Path(folder) == self.work.parent:
                folders.remove(self.work.name)
            for name in (*folders, *files):
                path = Path(folder, name)
                stat = path.lstat()
                found[str(path)] = (stat.st_mode, stat.st_ino, stat.st_uid)
                if name in files:
                    found[f"{path} holds"] = path.read_text()
        return found

    def paths(self) -> list[str]:
        """All paths, without duplicates."""
        families = (
            self._dots, self._links, self._folder_links, self._loops, self._kernel, self._hard,
            self._letter_paths, self._ends, self._long, self._odd_files, self._words,
        )  # fmt: skip
        return list(dict.fromkeys(path for family in families for path in family()))

    def _relative(self, target: Path) -> str:
        return os.path.relpath(target, self.work)

    def _dots(self) -> Iterator[str]:
        targets = [self._relative(path) for path in (*self.canaries, self.outside / "new")]
        shapes = (
            "{}", "./{}", ".//{}", "sub/../{}", "sub/./../{}", "no/such/../../{}", "{}/", "{}/.",
            "mine.txt/../{}", "sub/../sub/../{}", "{}/../{name}", "//{}", "sub//..//{}",
        )  # fmt: skip
        for target in targets:
            for shape in shapes:
                yield shape.format(target, name=Path(target).name)
            yield target.replace("../", "..//")
            yield target.replace("../", ".././")
        for count in range(1, 40):
            yield "../" * count + "etc/hermes-hostile-test"
            yield "sub/" + "../" * count + "hermes-hostile-test"
        for path in (*self.canaries, self.outside / "new", Path("/etc/hermes-hostile-test")):
            for shape in ("{}", "/{}", "//{}", "{}/", "{}/.", "{}//", "/.{}", "/..{}", "/../..{}"):
                yield shape.format(path)

    def _links(self) -> Iterator[str]:
        """Chains of links, up to more than the kernel follows, absolute and relative."""
        for number, target in enumerate((*self.canaries, self.outside / "made")):
            for manner in ("to", "up"):
                lead = str(target) if manner == "to" else self._relative(target)
                for length in (1, 2, 3, 5, 8, 13, 21, 34, 39, 40, 41, 50):
                    name = f"chain-{manner}-{number}-{length}"
                    ahead = lead
                    for step in range(length):
                        here = name if step == length - 1 else f"{name}.{step}"
                        (self.work / here).symlink_to(ahead)
                        ahead = here
                    yield name
                    yield f"sub/../{name}"

    def _folder_links(self) -> Iterator[str]:
        folders = (self.root, self.outside, self.hermes, self.hermes / "vault", Path("/"))
        for number, folder in enumerate(folders):
            for manner, lead in (("to", str(folder)), ("up", self._relative(folder))):
                first, second = f"dir-{manner}-{number}", f"dir2-{manner}-{number}"
                (self.work / first).symlink_to(lead)
                (self.work / second).symlink_to(f"./sub/../{first}/.")
                for canary in (*self.canaries, folder / "new"):
                    if canary.is_relative_to(folder):
                        below = canary.relative_to(folder)
                        yield f"{first}/{below}"
                        yield f"{second}/{below}"
                        yield f"{first}/./{below}"
                        yield f"{first}//{below}/"
                yield f"{first}/made/by/us"
                yield f"{first}/../outside/plain.txt"

    def _loops(self) -> Iterator[str]:
        for size in range(1, 12):
            for step in range(size):
                (self.work / f"loop-{size}-{step}").symlink_to(f"loop-{size}-{(step + 1) % size}")
                yield f"loop-{size}-{step}"
            yield f"loop-{size}-0/x"
        (self.work / "grows").symlink_to("grows/grows")
        (self.work / "self").symlink_to(".")
        yield from ("grows", "grows/x", "self/" * 60 + "mine.txt", "self/../../outside/plain.txt")

    def _kernel(self) -> Iterator[str]:
        pid = os.getpid()
        roots = ("/proc/self/root", f"/proc/{pid}/root", "/proc/thread-self/root", "/proc/1/root")
        for root in roots:
            for canary in self.canaries:
                yield f"{root}{canary}"
                yield f"{root}/proc/self/root{canary}"
        for canary in self.canaries:
            yield f"/proc/self/cwd/{os.path.relpath(canary, Path.cwd())}"
            yield f"/proc/{pid}/cwd/../../../../../../..{canary}"
        for handle in self.handles:
            for folder in (
                "/proc/self/fd",
                f"/proc/{pid}/fd",
                "/dev/fd",
                f"/proc/{pid}/task/{pid}/fd",
            ):
                yield f"{folder}/{handle}"
                yield f"{folder}/{handle}/plain.txt"
                yield f"{folder}/{handle}/.env"
                yield f"{folder}/{handle}/outside/plain.txt"
        for number, lead in enumerate(
            (*roots, "/proc/self/cwd", "/proc/self/fd", "/dev/fd", "/proc")
        ):
            (self.work / f"kernel-{number}").symlink_to(lead)
            yield f"kernel-{number}"
            yield f"kernel-{number}{self.closed[0]}"
            yield f"kernel-{number}/{self.handles[0]}"
            yield f"kernel-{number}/self/environ"
        names = (
            "environ", "mem", "maps", "cmdline", "status", "exe", "oom_score_adj", "comm", "stat",
            "attr/current", "map_files", "ns/mnt", "mountinfo", "auxv", "syscall", "pagemap",
        )  # fmt: skip
        for name in names:
            yield f"/proc/self/{name}"
            yield f"/proc/{pid}/{name}"
        yield from (
            "/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/proc/kcore", "/proc/kmsg",
            "/sys/power/state", "/sys/kernel/mm/ksm/run", "/sys/fs/cgroup/cgroup.procs", "/proc",
            "/sys", "/proc/", "/proc/.", "//proc/self/environ", "/proc/../proc/self/environ",
        )  # fmt: skip

    def _hard(self) -> Iterator[str]:
        for number, canary in enumerate(self.canaries):
            for name in (f"hard-{number}", f"sub/hard-{number}.py", f"hard {number}.json"):
                os.link(canary, self.work / name)
                yield name
                yield f"./{name}"
            (self.work / f"link-to-hard-{number}").symlink_to(f"hard-{number}")
            yield f"link-to-hard-{number}"

    def _letter_paths(self) -> Iterator[str]:
        """Characters that look like dots and slashes, or are normalized to them."""
        dots = ("\uff0e\uff0e", "\u2024\u2024", "\u2025", "%2e%2e", "%252e%252e", "..\u200b",
                "\u202e..", "\udc2e\udc2e", "..\u0000", ".\u0307.", "\\.\\.", "..\\")  # fmt: skip
        slashes = ("\u2215", "\u2044", "\uff0f", "%2f", "%c0%af", "\\", "/", "\u29f8")
        for dot in dots:
            for slash in slashes:
                yield f"{dot}{slash}{dot}{slash}outside{slash}plain.txt"
                yield f"{dot}{slash}.hermes{slash}.env"
        for name in (
            ".ENV",
            ".Env",
            "STATE.DB",
            "State.db",
            ".env\u200b",
            "\u200b.env",
            ".e\u0301nv",
        ):
            yield f"../.hermes/{name}"
            yield f"../.HERMES/{name}"

    def _ends(self) -> Iterator[str]:
        ends = (" ", "  ", ".", "..", "/", "//", "/.", "/..", "\0", "\0.txt", "\n", "\r", "\t",
                "%00", "::$DATA", ":", "~", "*", "?", "\x7f", "\x1b[2J", "/../.env", "/*", ";",
                "|", "&")  # fmt: skip
        for end in ends:
            for canary in (*self.canaries, self.work / "mine.txt"):
                yield f"{canary}{end}"
                yield f"{self._relative(canary)}{end}"
            yield end

    def _long(self) -> Iterator[str]:
        for length in (254, 255, 256, 257, 300, 4_000, 4_095, 4_096, 5_000, 70_000):
            yield "x" * length
            yield "../" + "x" * length
            yield "é" * (length // 2)
        for count in (100, 1_000, 2_000, 5_000):
            yield "d/" * count + "f"
            yield "../" * count + f"{self.closed[0]}".lstrip("/")
            yield "./" * count + "../.hermes/.env"

    def _odd_files(self) -> Iterator[str]:
        os.mkfifo(self.work / "fifo")
        here = Path.cwd()
        os.chdir(self.work)
        self._socket.bind("socket")
        os.chdir(here)
        names = ["fifo", "socket", "sub"]
        if os.geteuid() == 0:
            for name, minor in (("null", 3), ("zero", 5), ("full", 7)):
                os.mknod(self.work / name, 0o20666, os.makedev(1, minor))
                names.append(name)
        devices = (
            "null",
            "zero",
            "full",
            "random",
            "tty",
            "stdin",
            "stdout",
            "ptmx",
            "mem",
            "kmsg",
        )
        names += [f"/dev/{name}" for name in (*devices, "fd/0", "fd/1", "shm/../null", "pts/0", "")]
        for number, name in enumerate(names):
            (self.work / f"odd-{number}").symlink_to(name)
            yield name
            yield f"odd-{number}"
            yield f"{name}/x"
            yield f"odd-{number}/x"

    def _words(self) -> Iterator[str]:
        yield from (
            "~", "~/", "~/.bashrc", "~/.hermes/.env", "~/.hermes/state.db", "~/work/../.bashrc",
            "~root/.bashrc", "~/../outside/plain.txt", "~+/x", "~-", "~/~/x", "$HOME/.bashrc",
            "${HOME}/x", "$(touch hostile)", "`touch hostile`", "file:///etc/passwd",
            "http://127.0.0.1/x", "C:\\Windows\\x", "\\\\server\\share", "-rf", "--help", "a\nb",
            "", " ", ".", "..", "...", "/", "//", "///", "*", "CON", "NUL", "a" + "\u0301" * 200,
            ".git/hooks/pre-commit", ".git/config", "sub/.git/hooks/post-checkout", ".git",
        )  # fmt: skip
