"""L10: values that the pipeline calls secret are masked whatever the connector's schema says."""

import sys
from pathlib import Path

import pytest

from penstock.connectors.resolve import resolve
from penstock.connectors.source import SourceConnector
from penstock.errors import SourceError
from penstock.model.events import Event

WORD = "from-the-vault"


@pytest.mark.parametrize("question", ["spec", "check", "discover"])
def test_l10_extra_secrets_are_masked_in_every_question(tmp_path: Path, question: str) -> None:
    file = tmp_path / "source"
    file.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        f"if sys.argv[1] == 'spec' and {question!r} != 'spec':\n"
        "    print(json.dumps({'type': 'SPEC', 'spec': {'connectionSpecification':"
        " {'type': 'object'}}}))\n    sys.exit(0)\n"
        f"print(json.dumps({{'type': 'LOG', 'log': {{'level': 'INFO', 'message': '{WORD}'}}}}))\n"
        f"sys.stderr.write('err {WORD}\\n')\n"
        "print(json.dumps({'type': 'TRACE', 'trace': {'type': 'ERROR', 'emitted_at': 1,"
        f" 'error': {{'message': 'bad {WORD}'}}}}}}))\nsys.exit(1)\n"
    )
    file.chmod(0o755)
    heard: list[Event] = []
    source = resolve(
        SourceConnector,
        "airbyte:./source",
        tmp_path,
        base=tmp_path,
        log=heard.append,
        extra_secrets=[WORD],
    )
    with pytest.raises(SourceError) as caught:
        source.spec() if question == "spec" else getattr(source, question)({"plain": WORD})
    told = repr(heard) + repr(caught.value.as_dict())
    assert "****" in told and WORD not in told
