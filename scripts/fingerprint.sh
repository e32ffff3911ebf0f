# Sourced by ./penstock and scripts/setup.sh, with $root: is .venv what uv.lock, pyproject.toml and the
# Python of this machine ask for? One small file in .venv says of what it was made, so that a call
# which finds nothing new costs no start of Python or uv.
stamp="$root/.venv/penstock-made-of"

# In the order of preference. The system's own Python comes first: distributions build it optimised,
# tools that compile Pythons mostly do not, and it starts in three quarters of their time.
candidates="/usr/bin/python3 python3.11 python3.12 python3.13 python3"

asked_files() {
    cat "$root/uv.lock" "$root/pyproject.toml"
}

made_of() {
    for candidate in $candidates; do
        command -v "$candidate" || :
    done
    asked_files
}

# Whether this user can renew the environment.
can_write() {
    [ -w "$root" ] && { [ ! -e "$root/.venv" ] || [ -w "$root/.venv" ]; }
}

# Of another user's checkout only the files count: the Python that it was made with is still there.
made_by_another() {
    ! can_write && [ "$(tail -c "$(asked_files | wc -c)" "$stamp" | cksum)" = "$(asked_files | cksum)" ]
}

is_set_up() {
    [ -x "$root/.venv/bin/python" ] && [ -x "$root/.venv/bin/penstock" ] && [ -r "$stamp" ] &&
        { made_of | cmp -s - "$stamp" || made_by_another; }
}
