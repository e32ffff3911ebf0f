# Sourced by ./penstock and scripts/setup.sh, with $root: is .venv what uv.lock, pyproject.toml and the
# Python of this machine ask for? One small file in .venv says of what it was made, so that a call
# which finds nothing new costs no start of Python or uv.
stamp="$root/.venv/penstock-made-of"

# In the order of preference. The system's own Python comes first: distributions build it optimised,
# tools that compile Pythons mostly do not, and it starts in three quarters of their time.
candidates="/usr/bin/python3 python3.11 python3.12 python3.13 python3"

made_of() {
    for candidate in $candidates; do
        command -v "$candidate" || :
    done
    cat "$root/uv.lock" "$root/pyproject.toml"
}

is_set_up() {
    [ -x "$root/.venv/bin/python" ] && [ -x "$root/.venv/bin/penstock" ] && [ -f "$stamp" ] &&
        made_of | cmp -s - "$stamp"
}
