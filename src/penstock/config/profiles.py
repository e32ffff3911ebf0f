"""Puts a profile of a pipeline file (``profiles:``, one for each environment such as dev and prod)
over its other keys.

Works on nodes, before values are read: variables of unused profiles need no value, and faults keep
their lines. Not here: what the keys mean (``config.reader``).
"""

from typing import Any

from penstock.config.did_you_mean import hint
from penstock.config.yaml_nodes import Mapping, Node, Scalar
from penstock.errors import ConfigError

KEY = "profiles"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "Keys for one environment, by its name: `--with NAME` puts them over the file's."
    " Mappings are merged, all else is replaced; the pipeline is then called PIPELINE.NAME, unless"
    " they name it.",
    "additionalProperties": {"type": "object"},
    "examples": [{"prod": {"destination": {"use": "delta:s3://lake/shop"}}}],
}
_NAME = "pipeline"


def applied(root: Mapping, profile: str | None, file: str) -> Mapping:
    """Returns the file's keys without ``profiles``, overridden by those of ``profile`` (None: no
    profile). ``file``: its name, for messages. Raises ``ConfigError`` (``config.unknown_profile``,
    ``config.invalid``)."""
    own = Mapping(root.line, [(k, v) for k, v in root.items if k.text != KEY])
    profiles = root.get(KEY)
    if profiles is None and profile is None:
        return own
    known = _profiles(profiles, file)
    if profile is None:
        return own
    if profile not in known:
        raise ConfigError(
            f"{file} has no profile {profile!r}",
            code="config.unknown_profile",
            where=file,
            hint=hint(profile, known, "its profiles"),
        )
    chosen = known[profile]
    merged = _over(own, chosen)
    name = own.get(_NAME)
    if chosen.get(_NAME) is None and isinstance(name, Scalar):
        called = Scalar(f"{name.text}.{profile}", plain=False, line=name.line)
        merged = _over(merged, Mapping(name.line, [(Scalar(_NAME, True, name.line), called)]))
    return merged


def names_of_profiles(root: Node) -> tuple[str, ...]:
    """Returns the names of the file's profiles."""
    found = root.get(KEY) if isinstance(root, Mapping) else None
    return tuple(name.text for name, _ in found.items) if isinstance(found, Mapping) else ()


def _profiles(node: Node | None, file: str) -> dict[str, Mapping]:
    if node is None:
        return {}
    if not isinstance(node, Mapping):
        raise _invalid(file, node, f"{KEY} is a mapping of names to keys of the file")
    found: dict[str, Mapping] = {}
    for name, keys in node.items:
        if not isinstance(keys, Mapping):
            raise _invalid(file, keys, f"{KEY}.{name.text} is a mapping of keys of the file")
        found[name.text] = keys
    return found


def _over(below: Mapping, above: Mapping) -> Mapping:
    items = list(below.items)
    places = {key.text: place for place, (key, _) in enumerate(items)}
    for key, value in above.items:
        place = places.get(key.text)
        if place is None:
            items.append((key, value))
            continue
        under = items[place][1]
        if isinstance(under, Mapping) and isinstance(value, Mapping):
            value = _over(under, value)
        items[place] = (key, value)
    return Mapping(below.line, items)


def _invalid(file: str, node: Node, what: str) -> ConfigError:
    problem = f"{file}:{node.line}: {what}"
    return ConfigError(
        problem,
        problems=[problem],
        code="config.invalid",
        where=f"{file}:{node.line}",
        hint="as in: profiles: {prod: {destination: {use: 'delta:/lake'}}}",
    )
