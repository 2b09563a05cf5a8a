"""Old import names for our code, so that programs and plugins written for them find it.

`hermes.compat.install()` adds one finder with one table; each name leads to the module of
ours that has the thing, or to a thin face in this package that hands everything on.
"""

from hermes.compat.finder import install

__all__ = ["install"]
