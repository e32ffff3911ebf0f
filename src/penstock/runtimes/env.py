"""Makes the environment variables of a connector: a short list of names, and the user's additions.

Variables of Penstock, Spark and Python are never passed, even if the user names them (L10).
``docs/permissions.md`` lists the names. Not here: secrets in arguments (``private_files``), masking
of what a connector prints (``masking``).
"""

import os
from collections.abc import Collection, Iterable, Mapping

from penstock.model.variables import withheld
from penstock.runtimes.contract import Start

BASE = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE"})
"""Variables that every connector gets, with each ``LC_*``, whatever its permissions."""
_KEPT = BASE | frozenset(
    {
        # certificate authorities, as the usual client libraries look for them
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "AWS_CA_BUNDLE",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    }
)
_KEPT_LOWER = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"})
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def clean_environment(
    extra: Mapping[str, str] | None = None, allowed: Collection[str] | None = None
) -> dict[str, str]:
    """Returns this process's locale, time zone, home, PATH, proxies and certificate settings,
    overridden by ``extra``. ``allowed``: names of variables that replace proxies and certificate
    settings (``env.allowed_vars``); None: no such permission."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("LC_")
        or (
            name in _KEPT or name.lower() in _KEPT_LOWER
            if allowed is None
            else name in BASE or (name in allowed and not withheld(name))
        )
    }
    kept.setdefault("PATH", _DEFAULT_PATH)
    kept.update(extra or {})
    return kept


def granted(names: Iterable[str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns those of the named variables that are set and that a connector may get. ``environ``:
    the variables to choose from; None: this process's."""
    known = os.environ if environ is None else environ
    return {name: known[name] for name in names if name in known and not withheld(name)}


def secrets_of(names: Iterable[str]) -> list[str]:
    """Returns the values of the named variables, which count as secrets (L10), except those of
    variables that connectors get unnamed."""
    given = granted(names)
    return [v for k, v in given.items() if k not in _KEPT and not k.startswith("LC_")]


def given_secrets(start: Start) -> list[str]:
    """Returns the secret values (:func:`secrets_of`) of the variables that the user names for a
    process, to be masked. Returns none for a component, whose manifest names its variables: its
    protocol masks them."""
    if start.component is not None:
        return []
    asked = start.permissions.configured() if start.permissions else {}
    return secrets_of((*start.env_keys, *asked.get("env.allowed_vars", ())))
