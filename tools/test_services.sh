#!/bin/sh
# What the tests need besides Python and git: the programs of a PostgreSQL server (the tests start a temporary server themselves),
# ssh-keygen to sign commits, sshd and gitolite to share a repository, curl for pages of the documentation, and a browser.
# Chromium's headless shell needs a third of the processor time of Chromium, which is used where the shell is not available.
set -eu

# A wrapper on the path may not work (those of Debian need a cluster), so each is tried.
have_postgres() {
    for directory in $(dirname "$(command -v initdb || echo /nowhere/initdb)") /usr/lib/postgresql/*/bin; do
        if "$directory/initdb" --version >/dev/null 2>&1 && "$directory/postgres" --version >/dev/null 2>&1; then
            return 0
        fi
    done
    return 1
}

works() {
    "$1" --version >/dev/null 2>&1
}

is_available() {
    apt-cache show "$1" 2>/dev/null | grep -q .
}

missing=
have_postgres || missing="postgresql"
command -v ssh-keygen >/dev/null 2>&1 || missing="$missing openssh-client"
[ -x /usr/sbin/sshd ] || missing="$missing openssh-server"
[ -x /usr/share/gitolite3/gitolite-shell ] || missing="$missing gitolite3"
command -v curl >/dev/null 2>&1 || missing="$missing curl"
works chromium-headless-shell || works chromium || missing="$missing chromium-headless-shell"
if [ -z "$missing" ] && ! works chromium-headless-shell && [ "$(id -u)" = 0 ] && is_available chromium-headless-shell; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium-headless-shell >/dev/null 2>&1 || true
fi
if [ -z "$missing" ]; then
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
    echo "tests: please install (names of Debian's packages): $missing" >&2
    exit 1
fi
echo "tests: installing $missing"
export DEBIAN_FRONTEND=noninteractive
# A package of a server would start the server, which the tests do not need; this is how Debian prevents it.
if [ ! -e /usr/sbin/policy-rc.d ]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
fi
apt-get update -qq
is_available chromium-headless-shell || missing=$(echo "$missing" | sed 's/chromium-headless-shell/chromium/')
if [ "${missing#postgresql}" != "$missing" ]; then
    # The package would create and start a server, which the tests do not need.
    apt-get install -y -qq --no-install-recommends postgresql-common >/dev/null
    sed -i 's/^#* *create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
fi
# shellcheck disable=SC2086  # a list of names
apt-get install -y -qq --no-install-recommends $missing >/dev/null
if ! have_postgres; then
    echo "tests: PostgreSQL was installed, but its programs do not work" >&2
    exit 1
fi
if ! works chromium-headless-shell && ! works chromium; then
    echo "tests: Chromium was installed, but it does not start" >&2
    exit 1
fi
