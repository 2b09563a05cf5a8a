"""Print the encoded shape of every Struct, independent of names, for comparison before and after a rename."""

import importlib, pkgutil, msgspec, hermes, sys, collections

seen = set()
shapes = collections.Counter()
bad = []
for m in pkgutil.walk_packages(hermes.__path__, "hermes."):
    if m.name.endswith("__main__"):
        continue
    try:
        mod = importlib.import_module(m.name)
    except BaseException as e:
        bad.append((m.name, repr(e)[:80]))
        continue
    for v in vars(mod).values():
        if (
            isinstance(v, type)
            and issubclass(v, msgspec.Struct)
            and v not in seen
            and v.__module__.startswith("hermes")
        ):
            seen.add(v)


def walk(c):
    for s in c.__subclasses__():
        if s not in seen and s.__module__.startswith("hermes"):
            seen.add(s)
        walk(s)


walk(msgspec.Struct)
for v in seen:
    c = v.__struct_config__
    shapes[
        (
            v.__struct_encode_fields__,
            str(c.tag),
            str(c.tag_field),
            c.omit_defaults,
            c.forbid_unknown_fields,
        )
    ] += 1
for k in sorted(shapes, key=str):
    print(shapes[k], k)
print("bad", bad, file=sys.stderr)
print(len(seen), file=sys.stderr)
