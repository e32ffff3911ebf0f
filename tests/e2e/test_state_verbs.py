"""The verbs of ``state`` over what real runs saved; what the source is then given decides."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pipelines import NAME, Site

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeSite = Callable[..., Site]


def _given(site: Site) -> dict[str, int]:
    """stream -> seq of the state that the last read was given."""
    state = site.journal()[-1]["state"] or []
    return {
        s["stream"]["stream_descriptor"]["name"]: s["stream"]["stream_state"]["seq"] for s in state
    }


def _state(name: str, seq: int) -> dict[str, Any]:
    return {
        "type": "STREAM",
        "stream": {"stream_descriptor": {"name": name}, "stream_state": {"seq": seq}},
    }


def _ok(site: Site, *words: str) -> Any:
    answer = site.cli(*words, "--json")
    assert answer.code == 0, answer.out + answer.err
    return answer.json


def test_state_of_streams_shown_reset_set_exported_and_imported(site: MakeSite) -> None:
    here = site(records=20)
    here.run()
    file = str(here.folder / "pipeline.yaml")

    shown = _ok(here, "state", "show", NAME)
    assert shown == {
        "pipeline": NAME,
        "type": "STREAM",
        "streams": [
            {"namespace": None, "name": "s0", "state": {"seq": 20}},
            {"namespace": None, "name": "s1", "state": {"seq": 20}},
        ],
        "shared": None,
    }
    assert _ok(here, "state", "show", file) == shown
    one = _ok(here, "state", "show", NAME, "--stream", "s1")
    assert [s["name"] for s in one["streams"]] == ["s1"]
    text = here.cli("state", "show", NAME)
    assert (text.code, "s0" in text.out, '{"seq": 20}' in text.out) == (0, True, True)

    exported = here.cli("state", "export", NAME)
    kept = here.folder / "kept.json"
    kept.write_text(exported.out)
    named = [s["stream"]["stream_descriptor"]["name"] for s in json.loads(exported.out)]
    assert named == ["s0", "s1"]

    # one stream is reset: the next run reads it again, and only it
    after = _ok(here, "state", "reset", NAME, "--stream", "s1")
    assert {s["name"]: s["state"] for s in after["streams"] if s["state"]} == {"s0": {"seq": 20}}
    ran = here.run({"records": 25})
    assert _given(here) == {"s0": 20}
    assert (ran.stream("s0").read, ran.stream("s1").read) == (5, 25)
    assert here.seqs("s0") == list(range(1, 26))
    assert here.seqs("s1") == list(range(1, 26))  # one row per key

    # one is set: the other keeps its own
    put = here.folder / "put.json"
    put.write_text(json.dumps([_state("s0", 15)]))
    after = _ok(here, "state", "set", NAME, f"@{put}")
    assert {s["name"]: s["state"]["seq"] for s in after["streams"]} == {"s0": 15, "s1": 25}
    ran = here.run({"records": 25})
    assert (ran.stream("s0").read, ran.stream("s1").read) == (10, 0)

    # what was exported is put back, all of it
    after = _ok(here, "state", "import", NAME, str(kept))
    assert {s["name"]: s["state"]["seq"] for s in after["streams"]} == {"s0": 20, "s1": 20}
    assert here.saved() == {"s0": {"seq": 20}, "s1": {"seq": 20}}

    # everything is reset
    assert _ok(here, "state", "reset", NAME)["streams"] == []
    assert _ok(here, "state", "show", NAME)["streams"] == []
    ran = here.run({"records": 3})
    assert (_given(here), ran.stream("s0").read, ran.stream("s1").read) == ({}, 3, 3)

    history = _ok(here, "state", "history", NAME)
    assert history[0]["at"] >= history[-1]["at"]
    newest = next(e for e in history if e["name"] == "s0")
    assert newest["state"]["stream"]["stream_state"] == {"seq": 3}
    of_s1 = _ok(here, "state", "history", NAME, "--stream", "s1")
    assert {e["name"] for e in of_s1} <= {"s1", None}
    assert any(e["state"] is None for e in of_s1)  # it was removed once
    assert len(_ok(here, "runs", NAME)) == 4


def test_global_state_keeps_what_is_shared_when_one_stream_is_reset(site: MakeSite) -> None:
    here = site(scenario="global", records=20)
    here.run()
    after = _ok(here, "state", "reset", NAME, "--stream", "s1")
    assert after["type"] == "GLOBAL"
    assert after["shared"] is not None
    ran = here.run({"records": 25})
    (given,) = here.journal()[-1]["state"]
    states = {
        s["stream_descriptor"]["name"]: s.get("stream_state")
        for s in given["global"]["stream_states"]
    }
    assert states["s0"] == {"seq": 20}
    assert not states.get("s1")
    assert given["global"]["shared_state"] == after["shared"]
    assert (ran.stream("s0").read, ran.stream("s1").read) == (5, 25)
    assert here.saved() == {"s0": {"seq": 25}, "s1": {"seq": 25}}


def test_legacy_state_is_reset_as_a_whole_or_not_at_all(site: MakeSite) -> None:
    here = site(scenario="legacy", records=20)
    here.run()
    before = here.described()
    refused = here.cli("state", "reset", NAME, "--stream", "s1", "--json")
    assert refused.code == 6
    assert refused.error["hint"]
    assert "LEGACY" in refused.error["message"].upper()
    assert here.described() == before
    assert _ok(here, "state", "show", NAME)["shared"]["positions"]
    exported = _ok(here, "state", "export", NAME)
    assert set(exported["positions"].values()) == {20}  # as the source sent it
    _ok(here, "state", "reset", NAME)
    ran = here.run()
    assert here.journal()[-1]["state"] is None
    assert (ran.stream("s0").read, ran.stream("s1").read) == (20, 20)


def test_full_refresh_option_forgets_the_states_of_its_streams(site: MakeSite) -> None:
    here = site(records=10)
    here.run()
    ran = here.run(full_refresh=True, streams=[{"name": "s1"}])
    assert [(s.name, s.read) for s in ran.report.streams] == [("s1", 10)]
    assert here.saved() == {"s0": {"seq": 10}, "s1": {"seq": 10}}
    assert _ok(here, "state", "show", NAME)["streams"][0]["name"] == "s0"
