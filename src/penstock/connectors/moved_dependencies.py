"""Knows the connectors that break because a dependency moved, and the requirements that fix them.

Two tables: the messages that identify a fault, and the packages older than Python 3.10. Each entry
has the requirement that was tested, and why. Pure, and light to import. Not here: running
connectors (``connector``), installing (``install``).
"""

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple


class MovedDependency(NamedTuple):
    """One fault. ``words``: matches the connector's stderr, or the installer's message.
    ``requirement``: fixes it, with the groups of ``words`` filled in. ``why``: what moved."""

    words: re.Pattern[str]
    requirement: str
    why: str


MOVED = (
    # singer:target-csv@0.3.0 imports it, and starts with setuptools 79.
    MovedDependency(
        re.compile(r"No module named '?pkg_resources"),
        "setuptools<80",
        "it needs pkg_resources, which newer setuptools lack",
    ),
    # airbyte:source-hubspot@5.7.0 requires only pendulum<3.0.0; 2.1.2 has to be built.
    MovedDependency(
        re.compile(r"module 'pendulum(?:\.\w+)?' has no attribute|from 'pendulum[.']"),
        "pendulum>=2,<3",
        "it needs pendulum 2: without a lower bound 0.4 is the newest with wheels, and pendulum 3 "
        "has other names",
    ),
    # airbyte:source-file 0.5.40 to 0.6.0, airbyte:source-s3 4.14.5 to 4.16.1.
    MovedDependency(
        re.compile(r"no version of smart-open\[(all|s3)\]=="),
        "smart-open[{0}]>=5,<7",
        "its release requires a smart-open of its own version, which does not exist",
    ),
)
"""The known faults, in the order to look for them."""

OLDER_THAN_PYTHON_3_10 = {
    "botocore": "botocore>=1.20",
    "cachetools": "cachetools>=4",
    "frozendict": "frozendict>=2",
    "funcy": "funcy>=1.17",
    "humps": "pyhumps>=3",
    "pymongo": "pymongo>=3.8,<4",
    "requests": "requests>=2.20",
    "urllib3": "urllib3>=1.26",
    "voluptuous": "voluptuous>=0.12",
}
"""Modules whose old versions import abstract classes from ``collections``, with versions that work
on Python 3.11, where botocore 1.8, cachetools 2.0, frozendict 1.2, funcy 1.10, pyhumps 1.3, pymongo
3.5, requests 2.12, urllib3 1.22 and voluptuous 0.10 fail. singer:tap-bronto@1.0.2 starts with those
of funcy and voluptuous."""

_ABCS = (
    "Callable|Container|Hashable|ItemsView|Iterable|Iterator|KeysView|Mapping|MappingView"
    "|MutableMapping|MutableSequence|MutableSet|Sequence|Set|Sized|ValuesView"
)
_OLD_ABCS = re.compile(
    rf"cannot import name '(?:{_ABCS})' from 'collections'"
    rf"|module 'collections' has no attribute '(?:{_ABCS})'"
)
_MODULE = re.compile(r"/(?:site|dist)-packages/(\w+)")


def mending(
    words: str, reference: str, *, given: Sequence[str] = (), installed: bool = True
) -> str | None:
    """Returns a hint for a connector that failed with these words; None: no known fault.
    ``reference``: the connector's. ``given``: the constraints of its installation. ``installed``:
    Penstock installs it as a package, so its dependencies may be bounded."""
    for fault in MOVED:
        found = fault.words.search(words)
        if found is not None:
            requirement = fault.requirement.format(*found.groups())
            return f"{fault.why}: {_way(requirement, reference, given, installed)}"
    found = _OLD_ABCS.search(words)
    if found is None:
        return None
    module = next(iter(_MODULE.findall(words[: found.start()])[::-1]), None)
    why = "is older than Python 3.10, which took the abstract classes out of `collections`"
    if module in OLDER_THAN_PYTHON_3_10:
        way = _way(OLDER_THAN_PYTHON_3_10[module], reference, given, installed)
        return f"its package {module} {why}: {way}"
    named = f" ({module})" if module else ""
    return (
        f"a package of it{named} {why}: bound that package from below with --constraint, or try"
        " another version of the connector"
    )


def _way(requirement: str, reference: str, given: Sequence[str], installed: bool) -> str:
    if not installed:
        text = shlex.quote(requirement)
        return f"install {text} where it is installed (a package of the index: --constraint {text})"
    options = " ".join(f"--constraint {shlex.quote(one)}" for one in (*given, requirement))
    return (
        f"`penstock add {shlex.quote(reference)} {options}` builds it so; give {options} with each"
        " command then, or list it under install.constraints in the pipeline file"
    )
