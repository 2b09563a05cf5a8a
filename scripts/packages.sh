#!/bin/sh
# Install the Debian packages that tests need if they are missing and we may; else say so.
PATH="$PATH:/usr/sbin"
missing=
command -v chromium >/dev/null || command -v google-chrome >/dev/null || missing="$missing chromium"
command -v dovecot >/dev/null || missing="$missing dovecot-imapd"
command -v inspircd >/dev/null || missing="$missing inspircd"
command -v prosody >/dev/null || missing="$missing prosody"
command -v sshd >/dev/null || missing="$missing openssh-server"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing for the tests:$missing; this takes about two minutes."
    export DEBIAN_FRONTEND=noninteractive
    for attempt in 1 2 3; do
        # Lists may be out of date; an index that cannot be fetched does not matter.
        apt-get -qq update >/dev/null 2>&1
        # shellcheck disable=SC2086
        apt-get -qq -o DPkg::Lock::Timeout=120 install --no-install-recommends $missing >/dev/null 2>&1 && exit 0
    done
fi
echo "packages: NOT INSTALLED:$missing; tests that need them are skipped or fail"
[ "${HERMES_PACKAGES:-}" != required ] || exit 1
