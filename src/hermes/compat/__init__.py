"""Import names of the public system, so that programs and plugins written for it work.

`hermes.compat.install()` adds an import hook with one table; each name leads to our module, or to a
thin facade in this package.
"""

from hermes.compat.finder import install

__all__ = ["install"]
