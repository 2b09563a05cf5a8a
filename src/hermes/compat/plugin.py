"""A pytest plugin (`-p hermes.compat.plugin`) for tests that use the public names."""

from hermes.compat import install

install()
