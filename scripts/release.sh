#!/bin/sh
# Builds the source archive and the wheel of a release into OUT (dist/ if not given), and checks
# them. `--look` leaves out the bare environments, which take a minute and 1.2 GB.
#
#   scripts/release.sh [--look] [OUT]
#
# Nothing is published: who owns the name on the package index does that, by the list that the
# script prints at its end.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
look=
[ "${1-}" != --look ] || { look=1 && shift; }
out=${1:-"$root/dist"}
mkdir -p "$out"
out=$(CDPATH='' cd -- "$out" && pwd)
cd "$root"
PATH="$root/.venv/bin:$root/.uv/bin:$PATH"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wrong() {
    echo "no release: $*" >&2
    exit 1
}
passed() { echo "✓ $*"; }

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
grep -q "^__version__ = \"$version\"$" src/penstock/__init__.py ||
    wrong "pyproject.toml says version $version, src/penstock/__init__.py another"
passed "version $version, in pyproject.toml and src/penstock/__init__.py"

uv lock --quiet --check || wrong "uv.lock is not that of pyproject.toml: run uv lock"
hosts=$(grep -o 'https://[^/"]*' uv.lock | sort -u | grep -v -e '^https://pypi.org$' \
    -e '^https://files.pythonhosted.org$' || true)
[ -z "$hosts" ] || wrong "uv.lock names a registry that not everybody reaches: $hosts"
passed "uv.lock is that of pyproject.toml, of the public index"

rm -f "$out/penstock-$version".tar.gz "$out/penstock-$version"-*.whl
uv build --quiet --out-dir "$out" "$root"  # the archive, and the wheel out of the archive
archive="$out/penstock-$version.tar.gz"
wheel="$out/penstock-$version-py3-none-any.whl"
[ -f "$archive" ] && [ -f "$wheel" ] || wrong "uv build wrote neither $archive nor $wheel"
{ git ls-files src 2>/dev/null || find src -type f ! -path '*/__pycache__/*'; } |
    sed 's,^src/,,' | sort >"$work/source"
python3 -m zipfile -l "$wheel" | awk '$1 !~ /\/$/ && NR > 1 {print $1}' >"$work/all"
grep -v '\.dist-info/' "$work/all" | sort >"$work/in-wheel"
diff "$work/source" "$work/in-wheel" >&2 || wrong "the wheel has other files than src has in git (< src, > wheel)"
for file in METADATA licenses/LICENSE entry_points.txt; do
    grep -q "^penstock-$version.dist-info/$file$" "$work/all" || wrong "the wheel has no $file"
done
tar -tzf "$archive" | grep -q "^penstock-$version/LICENSE$" || wrong "the archive has no LICENSE"
passed "$(wc -l <"$work/in-wheel") files and the license in the wheel, which came out of the archive"

# bare NAME FILE: installs FILE into an environment of its own, and runs what it brings.
bare() {
    uv venv --quiet --python "$(command -v python3)" "$work/$1"
    uv pip install --quiet --python "$work/$1/bin/python" "$2"
    set -- "$1" env -i PATH=/usr/bin:/bin HOME="$work" PENSTOCK_HOME="$work/home-$1" \
        "$work/$1/bin/penstock"
    name=$1
    shift
    [ "$("$@" --version)" = "penstock $version" ] || wrong "$name: --version is not $version"
    "$@" doctor --quiet || wrong "$name: penstock doctor finds something"
    "$@" run --quiet "singer:$root/scripts/release_tap.py" "parquet:$work/lake-$name" ||
        wrong "$name: a run failed"
    rows=$("$work/$name/bin/python" -c 'import sys, pyarrow.parquet as pq
print(pq.read_table(sys.argv[1]).num_rows)' "$work/lake-$name/rows")
    [ "$rows" = 3 ] || wrong "$name: the run wrote $rows rows, and not 3"
    "$@" spark stop >/dev/null 2>&1 || true
    passed "$name: installs into a bare environment; --version, doctor and a run of 3 rows"
    rm -rf "${work:?}/$name"
}
if [ -z "$look" ]; then
    bare wheel "$wheel"
    bare archive "$archive"
fi

cat <<END

$archive
$wheel

Before they are published:
[ ] git status is clean, and this commit is the one that CI passed with ./test
[ ] ./test ran tests/test_locks.py and tests/test_resolution.py today: the index has new versions every day
[ ] CHANGELOG.md: "Unreleased" is now "$version", with its date; a new "Unreleased" is above it
[ ] README.md and docs/install.md: the figures of the disk are those of this version
[ ] README.md: its links lead somewhere from the page of the index too
[ ] the kill matrix and the fuzz of CONTRIBUTING.md were played with this code
[ ] a home of the version before goes on: tests/e2e/test_kept_homes.py
[ ] the name on the index is ours, or the archive goes to our own index
Then: git tag v$version && git push origin v$version && uv publish "$archive" "$wheel"
After: uv tool install penstock==$version in an empty container, penstock doctor, the first command of README.md
END
