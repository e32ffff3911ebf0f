# /// script
# requires-python = ">=3.11"
# dependencies = ["componentize-py>=0.25,<0.26", "ziglang>=0.17,<0.18", "wasmtime>=50,<51"]
# ///
"""Builds an example connector: one component with its manifest, from what the registry has.

    uv run --script examples/rapidbyte/build.py python-source [-o FOLDER]      uv brings the tools
    python examples/rapidbyte/build.py python-source            where componentize-py, ziglang are

Without a name it lists what there is. Each example is a folder beside this file; ``EXAMPLES`` says
what its code is. How it is built: ``builder/guests.py``. The Rust ones are cargo's.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "builder"))

import guests  # noqa: E402


@dataclass(frozen=True)
class Example:
    """``entry``: a C file, or the Python module that has the class of the role."""

    name: str
    role: str
    entry: str

    @property
    def folder(self) -> Path:
        return HERE / self.name

    def sources(self) -> list[Path]:
        """All that it is made of, but for the builder."""
        sdk = guests.C_SDK if self.entry.endswith(".c") else guests.PYTHON_SDK
        files = [*self.folder.rglob("*"), *sdk.rglob("*")]
        return [f for f in files if f.suffix in (".py", ".c", ".h", ".json")]

    def build(self, out: Path, zig_cache: Path | None = None) -> None:
        if self.entry.endswith(".c"):
            code = [self.folder / self.entry]
            guests.c_guest(code, self.role, out, self.folder, zig_cache)
        else:
            guests.python_guest(self.entry, [self.folder], self.role, out, self.folder)


EXAMPLES = {
    example.name: example
    for example in (
        Example("python-source", "source", "numbers_source"),
        Example("python-destination", "destination", "lines_destination"),
        Example("python-postgres", "destination", "postgres_destination"),
        Example("python-transform", "transform", "clean_transform"),
        Example("c-source", "source", "numbers.c"),
        Example("c-destination", "destination", "count.c"),
        Example("c-transform", "transform", "pass.c"),
    )
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds an example Rapidbyte v4 connector.")
    parser.add_argument("example", nargs="?", choices=EXAMPLES)
    parser.add_argument("-o", "--out", type=Path, default=Path(), metavar="FOLDER")
    given = parser.parse_args()
    if given.example is None:
        sys.stdout.write("\n".join(EXAMPLES) + "\n")
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    out = given.out / f"{given.example.replace('-', '_')}.wasm"
    try:
        EXAMPLES[given.example].build(out)
    except (guests.BuildError, ModuleNotFoundError) as e:
        sys.stderr.write(f"{e}\n")
        return 1
    sys.stdout.write(f"{out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
