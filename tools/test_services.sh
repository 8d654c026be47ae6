#!/bin/sh
# What the tests need beside Python: a PostgreSQL server's programs. The tests start a throw-away server themselves.
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

if have_postgres; then
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
    echo "tests: a PostgreSQL server is needed; install its package (Debian: apt-get install postgresql)" >&2
    exit 1
fi
echo "tests: installing PostgreSQL"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# The package would make and start a server of its own, which nobody here needs.
apt-get install -y -qq --no-install-recommends postgresql-common >/dev/null
sed -i 's/^#* *create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
apt-get install -y -qq --no-install-recommends postgresql >/dev/null
if ! have_postgres; then
    echo "tests: PostgreSQL was installed, but its programs do not work" >&2
    exit 1
fi
