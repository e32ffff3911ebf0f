#!/bin/sh
# Renews tests/locks: the lowest and the newest dependencies that pyproject.toml permits, as the
# package registry has them today. tests/test_locks.py runs on both. Where it does not pass, change
# the bounds in pyproject.toml, and renew again.
set -eu
cd "$(dirname -- "$0")/.."
PATH="$PWD/.venv/bin:$PWD/.uv/bin:$PATH"
renew() { # FILE RESOLUTION
    uv pip compile --quiet pyproject.toml --universal --python-version 3.11 --resolution "$2" \
        --upgrade --no-annotate --custom-compile-command scripts/renew_locks.sh -o "tests/locks/$1"
}
renew lowest.txt lowest-direct
renew newest.txt highest
