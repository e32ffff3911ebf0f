# `just` shows what there is; ./test runs everything that CI runs.
default:
    @just --list

# The environment, as locked
setup:
    uv sync --locked --group dev --extra postgres

# Style, types, layers
check:
    uv run ruff check
    uv run ruff format --check
    uv run pyright --warnings
    uv run lint-imports --no-cache

format:
    uv run ruff format
    uv run ruff check --fix

# No Spark, no network, at most four minutes; says what it leaves out
quick *args:
    ./test --quick {{args}}

test *args:
    ./test {{args}}

# A million records through the spine, with the ratio to its bound
bench *args:
    uv run python bench/spine.py {{args}}

# The whole kill matrix, as it stands in docs/kill-matrix.md
kills:
    uv run python tests/e2e/kills.py --all

# The lowest and the newest dependencies that are permitted, which tests/test_locks.py runs on
locks:
    scripts/renew_locks.sh
