"""Names containers after the process that owns them, and removes those whose owner is dead.

An owner that ends removes its containers itself; the connector's supervisor removes those of a
killed owner. Containers left after that (by a power failure, or a supervisor that was killed too)
are found here, by their label and name.
"""

import secrets
from functools import cache

from penstock.errors import ConnectorError
from penstock.runtimes.container.engine import Engine
from penstock.runtimes.owner import is_dead, this_owner

LABEL = "penstock.owner"
_PREFIX = "penstock-"


def new_name() -> str:
    """Returns a unique name for a container: its owner, and a number."""
    return f"{_PREFIX}{this_owner()}-{secrets.token_hex(6)}"


def named(name: str) -> list[str]:
    """Returns the options of ``create`` for a name and a label by which it is found again."""
    return ["--name", name, "--label", f"{LABEL}={_owner(name)}"]


def orphans(engine: Engine) -> list[str]:
    """Returns the names of containers whose owner is dead. Raises ``ConnectorError``."""
    listed = engine.output(
        ["ps", "-a", "--filter", f"label={LABEL}", "--format", "{{.Names}}"],
        "containers cannot be listed",
    )
    return [name for name in listed.split() if is_dead(_owner(name))]


def remove_orphans(engine: Engine) -> list[str]:
    """Removes these containers; returns their names. Raises ``ConnectorError``."""
    return [n for n in orphans(engine) if engine.call(engine.removal(n)[1:]).returncode == 0]


@cache
def removed_once(engine: Engine) -> None:
    """Calls :func:`remove_orphans` at the first start in each process; after a failure the next
    process tries again."""
    try:
        remove_orphans(engine)
    except ConnectorError:
        return


def _owner(name: str) -> str:
    return name.removeprefix(_PREFIX).rpartition("-")[0]
