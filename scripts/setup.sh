# Sourced by ./penstock and ./test: finds uv or installs it beside the checkout, then makes .venv from
# uv.lock. Needs Python 3.11 to 3.13 with pip, and the package registry; nothing else.
root=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$root/scripts/fingerprint.sh"
if ! can_write; then
    echo "this checkout cannot be written by $(id -un), and its environment, .venv, is missing or out" \
        "of date: run $root/penstock once as a user who may write it, or copy the checkout to a" \
        "folder of yours and run it there" >&2
    exit 2
fi
export UV_PYTHON_DOWNLOADS=never UV_COMPILE_BYTECODE=1 UV_PROJECT_ENVIRONMENT="$root/.venv"

if command -v uv >/dev/null 2>&1 && uv --version >/dev/null 2>&1; then
    uv=uv
elif [ -x "$root/.uv/bin/uv" ]; then
    uv="$root/.uv/bin/uv"
else
    uv=
fi

python=
for candidate in $candidates; do
    if command -v "$candidate" >/dev/null 2>&1 && "$candidate" -c 'import sys
from importlib.util import find_spec
able = (3, 11) <= sys.version_info < (3, 14) and (sys.argv[1] or find_spec("pip"))
sys.exit(not able)' "$uv" 2>/dev/null; then
        python=$("$candidate" -c 'import sys; print(sys.executable)')
        break
    fi
done
if [ -z "$python" ]; then
    echo "Penstock needs Python 3.11, 3.12 or 3.13 with pip (Debian: apt-get install python3" \
        "python3-pip)" >&2
    exit 2
fi

if [ -z "$uv" ]; then
    uv="$root/.uv/bin/uv"
    echo "installing uv into .uv" >&2
    "$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
        --target "$root/.uv" 'uv>=0.13,<0.14' || {
        echo "uv could not be installed: is the package registry reachable?" >&2
        exit 2
    }
fi

# sync_environment [uv options]: .venv as uv.lock says, quick when nothing changed.
sync_environment() {
    [ -d "$root/.venv" ] || echo "setting up .venv (once; Spark is most of it)" >&2
    rm -f "$stamp"
    (cd "$root" && "$uv" sync --quiet --locked --python "$python" "$@")
    "$root/.venv/bin/python" -m compileall -q "$root/src" >/dev/null || true
    made_of >"$stamp.$$" && mv "$stamp.$$" "$stamp"
}
