#!/bin/sh
# Review what is about to be committed; the answer goes to stdout, so it can be piped on.
git diff --staged | "${HERMES:-.venv/bin/hermes}" -z "Review this change in a few sentences. What could break?"
