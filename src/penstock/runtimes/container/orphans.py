"""Names containers after the process that owns them, and removes those whose owner is dead.

An owner that ends removes its containers itself, and one that is killed has them removed by the
connector's supervisor; what is left after that (a machine that lost its power, a supervisor that
was killed too) is found here, by its label and name.
"""

import secrets
from functools import cache

from penstock.errors import ConnectorError
from penstock.runtimes.container.engine import Engine
from penstock.runtimes.owner import is_dead, this_owner

LABEL = "penstock.owner"
_PREFIX = "penstock-"


def new_name() -> str:
    """A container's name, which no other has: its owner, and a number."""
    return f"{_PREFIX}{this_owner()}-{secrets.token_hex(6)}"


def named(name: str) -> list[str]:
    """The options of ``create`` that name it so that it is found again."""
    return ["--name", name, "--label", f"{LABEL}={_owner(name)}"]


def orphans(engine: Engine) -> list[str]:
    """The names of containers whose owner is dead. Raises ``ConnectorError``."""
    listed = engine.output(
        ["ps", "-a", "--filter", f"label={LABEL}", "--format", "{{.Names}}"],
        "containers cannot be listed",
    )
    return [name for name in listed.split() if is_dead(_owner(name))]


def remove_orphans(engine: Engine) -> list[str]:
    """Remove them; gives the names of those that are gone. Raises ``ConnectorError``."""
    return [n for n in orphans(engine) if engine.call(engine.removal(n)[1:]).returncode == 0]


@cache
def removed_once(engine: Engine) -> None:
    """:func:`remove_orphans`, by each process at its first start; a failure is the next one's to
    mend."""
    try:
        remove_orphans(engine)
    except ConnectorError:
        return


def _owner(name: str) -> str:
    return name.removeprefix(_PREFIX).rpartition("-")[0]
