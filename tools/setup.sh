#!/bin/sh
# Makes .venv/ with everything locked, and fetches what the forge's pages load. Quick when nothing changed: stamps remember
# what was installed. What only the tests need is test_services.sh's.
set -eu
cd "$(dirname "$0")/.."

python=
for candidate in ${PYTHON:-} python3.14 python3.13 python3.12 python3.11 python3; do
    if command -v "$candidate" >/dev/null 2>&1 &&
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "setup: Python 3.11 or newer is needed; set PYTHON to one" >&2
    exit 1
fi

# Two stamps: the packages change rarely, this project's own entry points more often.
packages=$(cat requirements/dev.txt tools/setup.sh | cksum; "$python" --version; pwd)
project=$(cksum <pyproject.toml)
have() { [ -x .venv/bin/python ] && [ "$(cat ".venv/.clia-$1" 2>/dev/null)" = "$2" ]; }
if ! have packages "$packages"; then
    echo "setup: .venv with the locked packages ($("$python" --version))"
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
            apt-get update -qq
            apt-get install -y -qq "$(basename "$python")-venv" || apt-get install -y -qq python3-venv
        else
            echo "setup: this Python has no venv module; install it (Debian: apt-get install python3-venv)" >&2
            exit 1
        fi
    fi
    "$python" -m venv --clear .venv
    # The lock is complete. Resolving again would fail as soon as a package has a release that is newer than the lock.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/dev.txt
fi
if ! have packages "$packages" || ! have project "$project"; then
    .venv/bin/python -m pip uninstall --quiet --yes clia 2>/dev/null || true # the former name of the distribution
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
    printf '%s' "$packages" >.venv/.clia-packages
    printf '%s' "$project" >.venv/.clia-project
fi
.venv/bin/python tools/assets.py
