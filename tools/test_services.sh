#!/bin/sh
# What the tests need beside Python and git: a PostgreSQL server's programs (the tests start a throw-away server themselves),
# ssh-keygen, to sign commits with, an sshd and gitolite, to share a repository over, curl, which pages of the documentation show,
# and a browser.
set -eu

# A wrapper on the path may not work (Debian's need a cluster of their own), so each is tried.
have_postgres() {
    for directory in $(dirname "$(command -v initdb || echo /nowhere/initdb)") /usr/lib/postgresql/*/bin; do
        if "$directory/initdb" --version >/dev/null 2>&1 && "$directory/postgres" --version >/dev/null 2>&1; then
            return 0
        fi
    done
    return 1
}

missing=
have_postgres || missing="postgresql"
command -v ssh-keygen >/dev/null 2>&1 || missing="$missing openssh-client"
[ -x /usr/sbin/sshd ] || missing="$missing openssh-server"
[ -x /usr/share/gitolite3/gitolite-shell ] || missing="$missing gitolite3"
command -v curl >/dev/null 2>&1 || missing="$missing curl"
chromium --version >/dev/null 2>&1 || missing="$missing chromium"
if [ -z "$missing" ]; then
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
    echo "tests: please install (names of Debian's packages): $missing" >&2
    exit 1
fi
echo "tests: installing $missing"
export DEBIAN_FRONTEND=noninteractive
# Packages of servers would start one of their own, which nobody here needs; this is Debian's way to say so.
if [ ! -e /usr/sbin/policy-rc.d ]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
fi
apt-get update -qq
if [ "${missing#postgresql}" != "$missing" ]; then
    # The package would make and start a server of its own, which nobody here needs.
    apt-get install -y -qq --no-install-recommends postgresql-common >/dev/null
    sed -i 's/^#* *create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
fi
# shellcheck disable=SC2086  # a list of names
apt-get install -y -qq --no-install-recommends $missing >/dev/null
if ! have_postgres; then
    echo "tests: PostgreSQL was installed, but its programs do not work" >&2
    exit 1
fi
if ! chromium --version >/dev/null 2>&1; then
    echo "tests: chromium was installed, but it does not start" >&2
    exit 1
fi
