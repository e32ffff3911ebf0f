"""The environment a connector gets: a short list of names, and what the user gives. Nothing of
ours, of Spark or of Python leaks into it (L10), whoever names it. ``docs/permissions.md`` lists the
names.

Not here: secrets in arguments (``private_files``), what a connector prints (``masking``).
"""

import os
from collections.abc import Collection, Iterable, Mapping

from penstock.model.variables import withheld
from penstock.runtimes.contract import Start

BASE = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE"})
"""What any program needs, with each ``LC_*``; no permission takes it away."""
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
    """Locale, time zone, home, PATH, proxies and certificate settings of this process, then
    ``extra`` over them. ``allowed``: these variables of ours instead of proxies and certificate
    settings."""
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
    """Of variables that are asked for by name, those that are set and may be given."""
    known = os.environ if environ is None else environ
    return {name: known[name] for name in names if name in known and not withheld(name)}


def secrets_of(names: Iterable[str]) -> list[str]:
    """The values that are secret because they are given by name (L10). What every connector gets
    is none."""
    given = granted(names)
    return [v for k, v in given.items() if k not in _KEPT and not k.startswith("LC_")]


def given_secrets(start: Start) -> list[str]:
    """The values, here, of the variables that a process is given by name: secret wherever they
    stand. A component's are known to whoever reads its manifest."""
    if start.component is not None:
        return []
    asked = start.permissions.configured() if start.permissions else {}
    return secrets_of((*start.env_keys, *asked.get("env.allowed_vars", ())))
