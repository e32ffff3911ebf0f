"""Measures the pages of ``penstock ui``: the first page after the command, a folder of 1,000
pipelines, 10,000 streams, a million rejects; seconds, CPU seconds of the server, memory, bytes.

    python bench/web_pages.py
"""

import gzip
import sys
import tempfile
import time
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "web"))
from web_harness import Pages

from penstock.config.home import Home
from penstock.engine.log.rejects import RejectLine
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store

REJECTS, FILES = 1_000_000, 100


def cpu(site: Pages) -> float:
    fields = Path(f"/proc/{site.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def memory(site: Pages) -> int:
    status = Path(f"/proc/{site.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1000


def measured(site: Pages, name: str, path: str, times: int = 5) -> str:
    before, began = cpu(site), time.monotonic()
    text = ""
    for _ in range(times):
        answered = site.ask(path)
        assert answered.status == 200, answered.text
        text = answered.text
    seconds = (time.monotonic() - began) / times
    print(f"{name:<44} {seconds * 1000:7.0f} ms {(cpu(site) - before) / times * 1000:7.0f} ms CPU"
          f" {len(text) // 1000:5} kB {memory(site):5} MB")  # fmt: skip
    return text


def rejects(site: Pages) -> None:
    """A run that the store knows, with files of rejects as a run keeps them."""
    home, run = Home(site.home), "run-of-a-million"
    store = open_store(home.state_url())
    store.start_run(store.acquire("p0000", this_holder(run), 60), run, "2026-01-01T00:00:00Z")
    store.close()
    folder = home.run(run) / "rejects"
    folder.mkdir(parents=True, exist_ok=True)
    reject = RejectLine(
        None, "orders", "null", "id", body='{"id": null, "name": "' + "x" * 80 + '"}'
    )
    line = msgspec.json.encode(reject) + b"\n"
    for number in range(FILES):
        (folder / f"{number:08}-000001.jsonl").write_bytes(line * (REJECTS // FILES))


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        began = time.monotonic()
        site = Pages(Path(place), forked=False).enter()
        text = site.ask("/").text
        print(f"first page after the command: {time.monotonic() - began:.2f} s, "
              f"{cpu(site):.2f} s CPU, {memory(site)} MB")  # fmt: skip
        once = [site.ask(f"/static/{n}").text for n in ("style.css", "ui.js", "htmx.min.js")]
        plain = sum(map(len, (text, *once)))
        packed = sum(len(gzip.compress(t.encode())) for t in (text, *once))
        print(f"bytes of the first page: {plain / 1000:.0f} kB, {packed / 1000:.0f} kB compressed")
        for number in range(1000):
            site.write(f"p{number:04}.yaml", region="eu", token="x", auth={"kind": "open"})
        measured(site, "1,000 pipelines, first page", "/")
        measured(site, "1,000 pipelines, page 20", "/?page=20")
        file = site.write("many.yaml", region="eu", token="x", auth={"kind": "open"}, many=10_000)
        job = site.ask("/p/many.yaml/discover", "POST", {}, origin=site.base).headers["location"]
        while "every 1s" in site.ask(job).text:
            time.sleep(0.2)
        page = measured(site, "10,000 streams, first page", "/p/many.yaml/streams")
        form = {"mark": page.partition('name="mark" value="')[2][:64], "words": "s0*",
                "do": "bulk", "bulk_destination_sync_mode": "append"}  # fmt: skip
        before, began = cpu(site), time.monotonic()
        assert site.ask("/p/many.yaml/streams", "POST", form, origin=site.base).status == 303
        print(f"10,000 streams changed at once: {time.monotonic() - began:.2f} s, "
              f"{cpu(site) - before:.2f} s CPU, {file.stat().st_size // 1000} kB")  # fmt: skip
        measured(site, "10,000 entries in the file, page 100", "/p/many.yaml/streams?page=100")
        rejects(site)
        base = "/p/p0000.yaml/rejects"
        measured(site, "a million rejects, first page", base, 2)
        measured(site, "a million rejects, page 2,000", f"{base}?page=2000", 1)
        measured(site, "a million rejects, none that fit", f"{base}?reason=zebra", 1)
        measured(site, "a million rejects, CSV", f"{base}/download?form=csv", 1)
        site.stop()


if __name__ == "__main__":
    main()
