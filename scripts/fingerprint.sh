# Sourced by ./penstock and scripts/setup.sh, with $root: is .venv what uv.lock, pyproject.toml and the
# Python of this machine ask for? One small file in .venv says of what it was made, so that a call
# which finds nothing new costs no start of Python or uv.
stamp="$root/.venv/penstock-made-of"

made_of() {
    for candidate in python3.11 python3.12 python3.13 python3; do
        command -v "$candidate" || :
    done
    cat "$root/uv.lock" "$root/pyproject.toml"
}

is_set_up() {
    [ -x "$root/.venv/bin/python" ] && [ -x "$root/.venv/bin/penstock" ] && [ -f "$stamp" ] &&
        made_of | cmp -s - "$stamp"
}
