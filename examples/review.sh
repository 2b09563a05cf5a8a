#!/bin/sh
# Review the staged changes. The answer goes to stdout, so it can be piped.
git diff --staged | "${HERMES:-.venv/bin/hermes}" -z "Review this change in a few sentences. What could break?"
