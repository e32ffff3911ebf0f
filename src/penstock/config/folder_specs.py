"""Finds the ``SPEC`` that each folder of a package declares in its module ``spec``: protocols and
table formats. Their packages are above this layer, so they are found by their location in the
installed package, not imported by name. A folder without such a module declares none."""

import pkgutil
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any


def specs_in(root: str) -> list[Any]:
    """Returns the specs of the folders in the package ``root`` (``penstock.protocols``)."""
    above = import_module(root).__path__
    found: list[Any] = []
    for folder in pkgutil.iter_modules(above):
        package = PathFinder.find_spec(f"{root}.{folder.name}", above)
        places = package.submodule_search_locations if package is not None else None
        module = f"{root}.{folder.name}.spec"
        if places is not None and PathFinder.find_spec(module, places) is not None:
            found.append(import_module(module).SPEC)
    return found
