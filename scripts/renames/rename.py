"""Rename modules, module-level names and identifiers of a tree, in one pass.

usage: rename.py TREE MAP... [--check]
Map lines:
  module OLD -> NEW            a module or package (prefix); several OLD to one NEW are merged in the order given
  name OLDMODULE:Old -> New    a module-level class, function or constant
  ident old -> new             an identifier everywhere (members, arguments, locals)
  file OLDPATH -> NEWPATH      any file, relative to the tree
"""

import ast, io, pathlib, re, subprocess, sys, tokenize, collections

args = [a for a in sys.argv[1:] if not a.startswith("--")]
CHECK = "--check" in sys.argv
TREE = pathlib.Path(args[0]).resolve()
MODULES, NAMES, IDENTS, FILES = {}, {}, {}, {}
errors = []


def err(msg):
    errors.append(msg)


for path in args[1:]:
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        m = re.fullmatch(r"(module|name|ident|file)\s+(\S+)\s*->\s*(\S+)", line)
        if not m:
            err(f"{path}:{number}: cannot read {line!r}")
            continue
        kind, old, new = m.groups()
        table = {"module": MODULES, "name": NAMES, "ident": IDENTS, "file": FILES}[kind]
        if kind == "name":
            mod, _, sym = old.partition(":")
            old = (mod, sym)
        if old in table and table[old] != new:
            err(f"{path}:{number}: {old} is mapped twice ({table[old]}, {new})")
        table[old] = new

# --- the tree
ROOTS = [
    ("src", ""),
    ("tests", ""),
    ("bench", "bench"),
    ("demo", "demo"),
    ("scripts", "scripts"),
    ("examples", "examples"),
]


def tracked():
    out = subprocess.run(
        ["git", "-C", TREE, "ls-files"], capture_output=True, text=True, check=True
    ).stdout
    return [TREE / p for p in out.splitlines()]


ALL = [p for p in tracked() if p.exists()]
PY = [p for p in ALL if p.suffix == ".py"]


def module_of(path):
    rel = path.relative_to(TREE)
    for root, prefix in ROOTS:
        if rel.parts[0] == root:
            parts = list(rel.parts[1:])
            parts[-1] = parts[-1][:-3]
            if parts[-1] == "__init__":
                parts.pop()
            return ".".join(([prefix] if prefix else []) + parts)
    return rel.stem


PATH_OF = {}
for p in PY:
    PATH_OF.setdefault(module_of(p), p)
IS_PKG = {m for m, p in PATH_OF.items() if p.name == "__init__.py"}
PACKAGES = set(IS_PKG)
for m in PATH_OF:
    while "." in m:
        m = m.rpartition(".")[0]
        PACKAGES.add(m)


def map_module(mod):
    cur = mod
    while cur:
        if cur in MODULES:
            return MODULES[cur] + mod[len(cur) :]
        cur = cur.rpartition(".")[0]
    return mod


for old in MODULES:
    if old not in PATH_OF and old not in PACKAGES:
        err(f"no module {old}")

TEXT = {p: p.read_text() for p in PY}
AST = {}
for p in PY:
    AST[p] = ast.parse(TEXT[p])

# --- top-level bindings, with re-exports
TOP = {}  # module -> {name: None or (module, symbol)}


def top_bindings(tree):
    found = {}

    def visit(body):
        for node in body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                found[node.name] = None
            elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for t in targets:
                    for n in ast.walk(t):
                        if isinstance(n, ast.Name):
                            found[n.id] = None
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for a in node.names:
                    found.setdefault(a.asname or a.name, (node.module, a.name))
            elif isinstance(node, (ast.If, ast.Try)):
                visit(node.body)
                visit(node.orelse)
                for h in getattr(node, "handlers", []):
                    visit(h.body)

    visit(tree.body)
    return found


for m, p in PATH_OF.items():
    TOP[m] = top_bindings(AST[p])


def origin(mod, sym, depth=0):
    """The defining (module, symbol), or ('module', dotted) if it is a module."""
    full = f"{mod}.{sym}"
    if mod in TOP and sym in TOP[mod]:
        nxt = TOP[mod][sym]
        if nxt is None:
            return (mod, sym)
        if depth < 8 and (nxt[0] in TOP or nxt[0] in PACKAGES):
            return origin(nxt[0], nxt[1], depth + 1)
        return None
    if full in PATH_OF or full in PACKAGES:
        return ("module", full)
    return None


for m, s in NAMES:
    if m not in TOP or s not in TOP[m] or TOP[m][s] is not None:
        err(f"no name {m}:{s}")


def new_symbol(mod, sym):
    o = origin(mod, sym)
    if o and o[0] != "module":
        return NAMES.get(o, sym)
    return sym


# --- scopes
class Scope:
    def __init__(self, node, parent):
        self.node, self.parent, self.binds, self.is_class = (
            node,
            parent,
            {},
            isinstance(node, ast.ClassDef),
        )
        self.glob = set()

    def bind(self, name, what):
        self.binds.setdefault(name, []).append(what)

    def lookup(self, name):
        s = self
        first = True
        while s:
            if name in s.glob:
                while s.parent:
                    s = s.parent
                return s if name in s.binds else None
            if name in s.binds and (first or not s.is_class):
                return s
            s = s.parent
            first = False
        return None


class Walker(ast.NodeVisitor):
    def __init__(self, tree):
        self.scope = Scope(tree, None)
        self.module = self.scope
        self.refs = []
        self.imports = []
        self.attrs = []
        self.strings = []
        self.globals = []
        self.pending = []
        for n in tree.body:
            self.visit(n)

    def bind(self, name, what=("other",)):
        self.scope.bind(name, what)

    def ref(self, node, name):
        self.refs.append((node, name, self.scope))

    def within(self, node, do):
        outer = self.scope
        self.scope = Scope(node, outer)
        do()
        self.scope = outer

    def visit_Import(self, node):
        for a in node.names:
            self.bind(
                a.asname or a.name.split(".")[0],
                ("module", a.name if a.asname else a.name.split(".")[0]),
            )
        self.imports.append((node, self.scope))

    def visit_ImportFrom(self, node):
        for a in node.names:
            o = origin(node.module or "", a.name) if not node.level else None
            if o and o[0] == "module":
                self.bind(a.asname or a.name, ("module", o[1]))
            else:
                self.bind(a.asname or a.name, ("symbol", node.module, a.name, bool(a.asname)))
        self.imports.append((node, self.scope))

    def visit_Name(self, node):
        if isinstance(node.ctx, (ast.Store, ast.Del)):
            self.bind(node.id)
        self.ref(node, node.id)

    def visit_Global(self, node):
        self.scope.glob.update(node.names)
        self.globals.append((node, self.scope))

    def visit_Nonlocal(self, node):
        self.globals.append((node, self.scope))

    def visit_ExceptHandler(self, node):
        if node.name:
            self.bind(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node):
        if node.name:
            self.bind(node.name)
        self.generic_visit(node)

    def visit_MatchStar(self, node):
        if node.name:
            self.bind(node.name)

    def visit_MatchMapping(self, node):
        if node.rest:
            self.bind(node.rest)
        self.generic_visit(node)

    def visit_Attribute(self, node):
        self.attrs.append((node, self.scope))
        self.generic_visit(node)

    def visit_Call(self, node):
        f = node.func
        if (
            isinstance(f, ast.Name)
            and f.id == "cast"
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, str)
        ):
            self.strings.append((node.args[0], self.scope))
        self.generic_visit(node)

    def annotation(self, node):
        if node is None:
            return
        todo = [node]
        while todo:
            n = todo.pop()
            if isinstance(n, ast.Constant) and isinstance(n.value, str):
                self.strings.append((n, self.scope))
            literal = (
                isinstance(n, ast.Subscript)
                and getattr(n.value, "id", getattr(n.value, "attr", "")) == "Literal"
            )
            if not literal and not isinstance(n, ast.Call):
                todo += ast.iter_child_nodes(n)
        self.visit(node)

    def function(self, node):
        self.bind(node.name, ("def",))
        self.defs.append((node, self.scope)) if hasattr(self, "defs") else None
        for d in node.decorator_list:
            self.visit(d)
        a = node.args
        for x in [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]:
            if x:
                self.annotation(x.annotation)
        for d in [*a.defaults, *[k for k in a.kw_defaults if k]]:
            self.visit(d)
        self.annotation(node.returns)

        def body():
            for x in [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]:
                if x:
                    self.bind(x.arg)
            for n in node.body:
                self.visit(n)

        self.within(node, body)

    visit_FunctionDef = visit_AsyncFunctionDef = function

    def visit_Lambda(self, node):
        a = node.args
        for d in [*a.defaults, *[k for k in a.kw_defaults if k]]:
            self.visit(d)

        def body():
            for x in [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]:
                if x:
                    self.bind(x.arg)
            self.visit(node.body)

        self.within(node, body)

    def visit_ClassDef(self, node):
        self.bind(node.name, ("def",))
        for d in node.decorator_list:
            self.visit(d)
        for b in node.bases:
            self.visit(b)
        for k in node.keywords:
            self.visit(k.value)
        self.within(node, lambda: [self.visit(n) for n in node.body])

    def visit_AnnAssign(self, node):
        self.visit(node.target)
        self.annotation(node.annotation)
        if node.value:
            self.visit(node.value)

    def comp(self, node):
        def body():
            for g in node.generators:
                self.visit(g.target)
                self.visit(g.iter)
                [self.visit(i) for i in g.ifs]
            if isinstance(node, ast.DictComp):
                self.visit(node.key)
                self.visit(node.value)
            else:
                self.visit(node.elt)

        self.within(node, body)

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = comp

    def visit_NamedExpr(self, node):
        s = self.scope
        while isinstance(s.node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            s = s.parent
        s.bind(node.target.id, ("other",))
        self.ref(node.target, node.target.id)
        self.visit(node.value)


def line_starts(text):
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    return starts


def rewrite(path):
    text = TEXT[path]
    raw = text.encode()
    mod = module_of(path)
    starts = line_starts(text)
    off = lambda line, col: starts[line - 1] + col
    edits = {}  # (start, end) -> bytes

    def edit(start, end, new, what=""):
        old = edits.get((start, end))
        if old is not None and old != new.encode():
            err(f"{path}: two edits at {start}: {old!r}, {new!r}")
        edits[(start, end)] = new.encode()

    w = Walker(AST[path])
    top = TOP.get(mod, {})

    def renamed_in(scope, name):
        """The new name of `name` as bound in this scope, or None."""
        if scope is None:
            return None
        if scope.parent is None and name in top and top[name] is None:
            kinds = scope.binds[name]
            return NAMES.get((mod, name))
        found = set()
        for b in scope.binds[name]:
            if b[0] == "symbol" and not b[3]:
                found.add(new_symbol(b[1], b[2]))
            elif b[0] == "module":
                dotted = b[1]
                if dotted.rpartition(".")[2] == name and "." in dotted:
                    found.add(map_module(dotted).rpartition(".")[2])
                else:
                    found.add(name)
            else:
                found.add(name)
        if len(found) > 1:
            if found - {name}:
                err(f"{path}: {name} is bound in several ways: {found}")
            return None
        new = found.pop()
        return new if new != name else None

    # names
    changed = collections.defaultdict(set)
    for node, name, scope in w.refs:
        s = scope.lookup(name)
        new = renamed_in(s, name) if s else None
        if new:
            start = off(node.lineno, node.col_offset)
            if raw[start : start + len(name.encode())] != name.encode():
                err(f"{path}:{node.lineno}: {name} is not where the parser says")
            edit(start, start + len(name.encode()), new)
            changed[new].add((name, id(s), s))
            t = scope
            while t is not None and t is not s.parent:
                if new in t.binds and not (
                    t is s
                    and all(
                        b[0] in ("symbol", "module") and renamed_in(t, new) for b in t.binds[new]
                    )
                ):
                    err(f"{path}:{node.lineno}: {name} -> {new} collides with a binding of {new}")
                    break
                t = t.parent
    for node, scope in w.globals:
        for name in node.names:
            new = renamed_in(w.module, name) if name in w.module.binds else None
            if new and isinstance(node, ast.Global):
                line = text.splitlines()[node.lineno - 1]
                k = line.index(name)
                s0 = off(node.lineno, len(line[:k].encode()))
                edit(s0, s0 + len(name.encode()), new)
    # definitions
    for node in ast.walk(AST[path]):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if node in TOPDEFS[path] and (mod, node.name) in NAMES:
                kw = (
                    "class "
                    if isinstance(node, ast.ClassDef)
                    else ("async def " if isinstance(node, ast.AsyncFunctionDef) else "def ")
                )
                s0 = off(node.lineno, node.col_offset) + len(kw)
                if raw[s0 : s0 + len(node.name)].decode() != node.name:
                    err(f"{path}:{node.lineno}: odd definition of {node.name}")
                new = NAMES[(mod, node.name)]
                edit(s0, s0 + len(node.name), new)
                if new in top:
                    o = top[new]
                    if not (o is None and (mod, new) in NAMES):
                        err(f"{path}: {node.name} -> {new}: {new} exists there already")
    # attributes of modules
    for node, scope in w.attrs:
        chain = []
        n = node
        while isinstance(n, ast.Attribute):
            chain.append(n)
            n = n.value
        if not isinstance(n, ast.Name):
            continue
        s = scope.lookup(n.id)
        if not s or not any(b[0] == "module" for b in s.binds.get(n.id, [])):
            continue
        dotted = [b[1] for b in s.binds[n.id] if b[0] == "module"][0]
        prefix_old = dotted
        chain.reverse()
        plain_import = dotted == n.id  # import hermes.x
        i = 0
        while (
            i < len(chain)
            and f"{prefix_old}.{chain[i].attr}" in (PATH_OF.keys() | PACKAGES)
            and not (prefix_old in TOP and chain[i].attr in TOP[prefix_old])
        ):
            prefix_old = f"{prefix_old}.{chain[i].attr}"
            i += 1
        if node is not chain[-1]:
            continue
        new_prefix = map_module(prefix_old)
        if new_prefix != prefix_old and i and plain_import:
            start = off(n.lineno, n.col_offset)
            end = off(chain[i - 1].end_lineno, chain[i - 1].end_col_offset)
            edit(start, end, new_prefix)
        elif i and new_prefix != prefix_old:
            err(f"{path}:{node.lineno}: attribute chain {prefix_old}")
        if i < len(chain):
            a = chain[i]
            new = new_symbol(prefix_old, a.attr)
            if new != a.attr:
                e0 = off(a.end_lineno, a.end_col_offset)
                edit(e0 - len(a.attr.encode()), e0, new)
    # attribute chains that continue after the symbol: the loop above runs on the outermost attribute only
    # quoted annotations
    for node, scope in w.strings:
        value = node.value

        def sub(m):
            s = scope.lookup(m.group(0))
            new = renamed_in(s, m.group(0)) if s else None
            return new or m.group(0)

        new = re.sub(r"[A-Za-z_]\w*", sub, value)
        if new != value:
            start, end = (
                off(node.lineno, node.col_offset),
                off(node.end_lineno, node.end_col_offset),
            )
            edit(start, end, raw[start:end].decode().replace(value, new))
    # __all__
    for node in AST[path].body:
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
        ):
            for c in ast.walk(node.value):
                if isinstance(c, ast.Constant) and isinstance(c.value, str):
                    new = renamed_in(w.module, c.value) if c.value in w.module.binds else None
                    if new:
                        start, end = (
                            off(c.lineno, c.col_offset),
                            off(c.end_lineno, c.end_col_offset),
                        )
                        edit(start, end, f'"{new}"')
    # imports
    for node, scope in w.imports:
        start, end = off(node.lineno, node.col_offset), off(node.end_lineno, node.end_col_offset)
        if isinstance(node, ast.Import):
            parts = []
            for a in node.names:
                new = map_module(a.name)
                parts.append(new + (f" as {a.asname}" if a.asname else ""))
            new = "import " + ", ".join(parts)
            if [map_module(a.name) for a in node.names] != [a.name for a in node.names]:
                edit(start, end, new)
            continue
        if node.level or not node.module:
            continue
        groups = collections.OrderedDict()
        differs = False
        for a in node.names:
            o = origin(node.module, a.name)
            if o and o[0] == "module" and o[1] == f"{node.module}.{a.name}":
                full = map_module(o[1])
                parent, _, leaf = full.rpartition(".")
                item = leaf + (f" as {a.asname}" if a.asname else "")
                if (parent, leaf) != (node.module, a.name):
                    differs = True
                if not parent:
                    parent, item = None, full + (f" as {a.asname}" if a.asname else "")
                groups.setdefault(parent, []).append(item)
            else:
                new_mod = map_module(node.module)
                sym = new_symbol(node.module, a.name)
                if (new_mod, sym) != (node.module, a.name):
                    differs = True
                groups.setdefault(new_mod, []).append(sym + (f" as {a.asname}" if a.asname else ""))
        if differs:
            indent = " " * node.col_offset
            seg = raw[start:end].decode()
            comment = ""
            m = re.search(r"#[^\n]*", seg)
            if m:
                comment = "  " + m.group(0)
            lines = []
            for parent, items in groups.items():
                stmt = (
                    f"import {', '.join(items)}"
                    if parent is None
                    else f"from {parent} import "
                    + (f"({', '.join(items)})" if len(items) > 3 else ", ".join(items))
                )
                lines.append(stmt + comment)
            # a comment behind the statement must stand behind each part
            rest = raw[end : raw.find(b"\n", end)].decode() if b"\n" in raw[end:] else ""
            joined = ""
            for k, l in enumerate(lines):
                joined += (indent if k else "") + l + (rest + "\n" if k < len(lines) - 1 else "")
            edit(start, end, joined)
    out = raw
    last = len(raw) + 1
    for (s0, e0), new in sorted(edits.items(), reverse=True):
        if e0 > last:
            err(f"{path}: overlapping edits near byte {s0}")
            continue
        out = out[:s0] + new + out[e0:]
        last = s0
    return out.decode()


TOPDEFS = {}
for p in PY:
    defs = set()

    def collect(body):
        for n in body:
            if isinstance(n, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                defs.add(n)
            elif isinstance(n, (ast.If, ast.Try)):
                collect(n.body)
                collect(n.orelse)
                [collect(h.body) for h in getattr(n, "handlers", [])]

    collect(AST[p].body)
    TOPDEFS[p] = defs

DOTTED = re.compile(r"\bhermes(?:\.[a-z_][a-z0-9_]*)+(?::[A-Za-z_]\w*)?")


def map_dotted(m):
    whole = m.group(0)
    dotted, _, sym = whole.partition(":")
    cur, rest = dotted, ""
    while cur and cur not in PATH_OF and cur not in PACKAGES:
        cur, _, tail = cur.rpartition(".")
        rest = "." + tail + rest
    if not cur or cur == "hermes":
        return whole
    out = map_module(cur)
    if rest and rest.count(".") == 1:
        rest = "." + new_symbol(cur, rest[1:])
    return out + rest + (":" + new_symbol(cur, sym) if sym else "")


SLASHED = re.compile(
    r"(?<![\w/.-])((?:src/hermes/|hermes/)?)([a-z_]+(?:/[a-z_0-9]+)+)(\.py|/)?(?![\w/])"
)


def map_slashed(m):
    pre, body, post = m.groups()
    dotted = "hermes." + body.replace("/", ".")
    if dotted in PATH_OF or dotted in PACKAGES:
        new = map_module(dotted)
        return pre + new[len("hermes.") :].replace(".", "/") + (post or "")
    return m.group(0)


warned = []


def rename_idents(text, path):
    if not IDENTS or not any(i in text for i in IDENTS):
        return text
    out = []
    lines = text.splitlines(keepends=True)
    edits = []
    there = set()
    for tok in tokenize.generate_tokens(io.StringIO(text).readline):
        if tok.type == tokenize.NAME:
            there.add(tok.string)
            if tok.string in IDENTS:
                edits.append((tok.start, tok.end, IDENTS[tok.string]))
    for old in there & IDENTS.keys():
        if IDENTS[old] in there:
            warned.append(
                f"ident {old} -> {IDENTS[old]}: {IDENTS[old]} is already used in {path.relative_to(TREE)}"
            )
    for (r, c), (_, c2), new in reversed(edits):
        l = lines[r - 1]
        lines[r - 1] = l[:c] + new + l[c2:]
    return "".join(lines)


def new_path(path):
    rel = str(path.relative_to(TREE))
    for old in sorted(FILES, key=len, reverse=True):
        if rel == old or rel.startswith(old.rstrip("/") + "/"):
            return TREE / (FILES[old].rstrip("/") + rel[len(old.rstrip("/")) :])
    parts = path.relative_to(TREE).parts
    roots = dict(ROOTS)
    if parts[0] in roots and path.suffix == ".py":
        mod = module_of(path)
        new = map_module(mod)
        if new != mod:
            if path.name == "__init__.py" and (mod in MODULES or new != mod):
                return TREE / parts[0] / pathlib.Path(*strip(new, roots[parts[0]])) / "__init__.py"
            return TREE / parts[0] / pathlib.Path(*strip(new, roots[parts[0]])).with_suffix(".py")
    elif parts[0] in ("src", "tests") and len(parts) > 2:
        pkg = ".".join(parts[1:-1])
        new = map_module(pkg)
        if new != pkg and pkg in PACKAGES | {".".join(parts[1:k]) for k in range(2, len(parts))}:
            return TREE / parts[0] / pathlib.Path(*new.split(".")) / parts[-1]
    return path


def strip(mod, prefix):
    parts = mod.split(".")
    return parts[1:] if prefix else parts


TEXTUAL = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def map_strings(text):
    """Module names inside strings and comments; imports are done already."""
    if "hermes." not in text:
        return text
    lines = text.splitlines(keepends=True)
    edits = []
    for tok in tokenize.generate_tokens(io.StringIO(text).readline):
        if tok.type in TEXTUAL and DOTTED.search(tok.string):
            edits += [
                (
                    r,
                    *(
                        (tok.start[1] if r == tok.start[0] else 0),
                        (tok.end[1] if r == tok.end[0] else None),
                    ),
                )
                for r in range(tok.start[0], tok.end[0] + 1)
            ]
    for r, c, c2 in sorted(set(edits), key=lambda e: e[:2], reverse=True):
        line = lines[r - 1]
        c2 = len(line) if c2 is None else c2
        lines[r - 1] = line[:c] + DOTTED.sub(map_dotted, line[c:c2]) + line[c2:]
    return "".join(lines)


results = {}
for p in PY:
    new = rewrite(p)
    new = rename_idents(new, p)
    results[p] = map_strings(new)
for p in ALL:
    if (
        p.suffix
        in (
            ".md",
            ".toml",
            ".sh",
            ".txt",
            "",
            ".importlinter",
            ".css",
            ".tcss",
            ".sql",
            ".yaml",
            ".json",
        )
        and p not in results
    ):
        try:
            t = p.read_text()
        except UnicodeDecodeError:
            continue
        n = DOTTED.sub(map_dotted, t)
        if p.suffix == ".md":
            n = SLASHED.sub(map_slashed, n)
        if n != t:
            results[p] = n
for p in list(results):
    if p.suffix == ".py":
        results[p] = (
            re.sub(
                r"(?<=[`\s(\"'])(?:[a-z_]+/)+[a-z_0-9]+\.py",
                lambda m: (
                    map_slashed(SLASHED.match(m.group(0)))
                    if SLASHED.match(m.group(0))
                    else m.group(0)
                ),
                results[p],
            )
            if "/" in results[p]
            else results[p]
        )

targets = collections.defaultdict(list)
for p in ALL:
    targets[new_path(p)].append(p)
if errors:
    print("\n".join(dict.fromkeys(errors)))
    print(len(set(errors)), "problems")
    if "--force" not in sys.argv:
        sys.exit(1)
if "--warn" in sys.argv:
    print("\n".join(warned))
if CHECK:
    print(
        "ok:",
        sum(new_path(p) != p for p in ALL),
        "files move,",
        sum(results.get(p, TEXT.get(p)) != TEXT.get(p) for p in PY),
        "files change",
    )
    sys.exit(0)


def merged(paths):
    """Several modules as one: imports first, then the bodies in the order of the map."""
    order = list(MODULES)
    paths = sorted(
        paths, key=lambda p: order.index(module_of(p)) if module_of(p) in MODULES else -1
    )
    news = {map_module(module_of(p)) for p in paths}
    head, imports, bodies, seen = "", [], [], set()
    for p in paths:
        text = results.get(p, TEXT[p])
        tree = ast.parse(text)
        lines = text.splitlines(keepends=True)
        body = list(tree.body)
        cut = set()
        if (
            body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
            and isinstance(body[0].value.value, str)
        ):
            doc = body.pop(0)
            seg = "".join(lines[doc.lineno - 1 : doc.end_lineno])
            head = head or seg
            cut.update(range(doc.lineno - 1, doc.end_lineno))
        for n in body:
            rng = range(n.lineno - 1, n.end_lineno)
            if isinstance(n, (ast.Import, ast.ImportFrom)):
                cut.update(rng)
                if isinstance(n, ast.ImportFrom) and n.module in news:
                    continue
                imports.append("".join(lines[n.lineno - 1 : n.end_lineno]))
            elif isinstance(n, ast.Assign) and len(n.targets) == 1:
                seg = "".join(lines[n.lineno - 1 : n.end_lineno])
                if seg in seen:
                    cut.update(rng)
                seen.add(seg)
        bodies.append("".join(l for i, l in enumerate(lines) if i not in cut).strip("\n"))
    return (
        head
        + "\n"
        + "".join(dict.fromkeys(imports))
        + "\n\n"
        + "\n\n\n".join(b for b in bodies if b)
        + "\n"
    )


writes, deletes = {}, set()
for target, sources in targets.items():
    if len(sources) == 1:
        p = sources[0]
        if target != p:
            deletes.add(p)
            writes[target] = results.get(p) if p in results else p.read_bytes()
        elif p in results and results[p] != (TEXT.get(p) if p in TEXT else p.read_text()):
            writes[p] = results[p]
    elif all(s.suffix == ".py" for s in sources):
        if target.name == "__init__.py" and all(not TEXT[s].strip() for s in sources):
            writes[target] = ""
        else:
            writes[target] = merged(sources)
        deletes.update(s for s in sources if s != target)
    else:
        print("clash:", target, sources)
modes = {t: s[0].stat().st_mode for t, s in targets.items()}
for p in deletes:
    p.unlink()
for t, data in writes.items():
    t.parent.mkdir(parents=True, exist_ok=True)
    t.write_bytes(data if isinstance(data, bytes) else data.encode())
    t.chmod(modes[t])
# packages need an __init__.py
for t in list(writes):
    d = t.parent
    while (
        t.suffix == ".py"
        and d != TREE / "src"
        and TREE / "src" in d.parents
        and d != TREE / "src/hermes"
    ):
        if not (d / "__init__.py").exists():
            (d / "__init__.py").write_text("")
        d = d.parent
for d in sorted({p.parent for p in deletes}, key=lambda d: -len(d.parts)):
    if d.exists() and {x.name for x in d.iterdir()} <= {"__pycache__"}:
        subprocess.run(["rm", "-r", d], check=True)
print(len(writes), "written,", len(deletes), "moved away")
