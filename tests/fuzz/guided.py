"""Coverage-guided fuzzing of one reader of bytes: `make fuzz ARGS="--guided snapshot -max_total_time=60"`.

Atheris (libFuzzer for Python) keeps the inputs that reach new lines of stepscope, and mutates those further. It begins
with the good inputs. What follows the reader's name goes to libFuzzer. It ends at the first failure, and leaves the
input beside the command as `crash-…`; `… snapshot crash-…` tries it again.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
os.environ["POLARS_MAX_THREADS"] = "1"

#: By reader: the kind of good input it begins with, and what the file is called.
READERS = {
    "sqlite": ("sqlite", "x.sqlite"),
    "kineto": ("kineto", "x.pt.trace.json"),
    "gzip": ("kineto", "x.pt.trace.json.gz"),
    "pftrace": ("pftrace", "x.pftrace"),
    "chrome": ("chrome", "x.json"),
    "ncu-csv": ("ncu-csv", "x.csv"),
    "snapshot": ("snapshot", "x.pickle"),
    "log": ("log", "x.jsonl"),
    "compile-log": ("compile-log", "x.log"),
    "labels": ("labels", "x.toml"),
    "limits": ("limits", "x.toml"),
    "model": ("model", "x.toml"),
    "taxonomy": ("taxonomy", "x.toml"),
    "baseline": ("baseline", "x.json"),
    "manifest": ("manifest", "manifest.json"),
}
#: Larger good inputs make libFuzzer slow.
_SMALL = 200_000


def main() -> int:
    reader = sys.argv[1] if len(sys.argv) > 1 else ""
    if reader not in READERS:
        print(f"readers: {', '.join(READERS)}", file=sys.stderr)
        return 2
    try:
        import atheris
    except ImportError:
        print("no atheris here: pip install atheris", file=sys.stderr)
        return 2
    with atheris.instrument_imports(include=["stepscope"]):
        from make_mutant import Factory  # noqa: F401

        import stepscope.api
        import stepscope.cli.main
        import stepscope.sources.kineto
        import stepscope.sources.pftrace.reading
        import stepscope.sources.snapshot.source  # noqa: F401
    folder = Path(tempfile.mkdtemp(prefix="stepscope-guided-"))
    try:
        seeds = _seeds(reader, folder)
        atheris.Setup(
            [sys.argv[0], *sys.argv[2:], *([] if _names_file(sys.argv[2:]) else [str(seeds)])], _target(reader, folder)
        )
        atheris.Fuzz()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _names_file(arguments: list[str]) -> bool:
    return any(not a.startswith("-") for a in arguments)


def _seeds(reader: str, folder: Path) -> Path:
    """The good inputs, as libFuzzer's corpus."""
    import gzip

    import good_inputs

    inputs = good_inputs.make(folder / "good")
    corpus = folder / "corpus"
    corpus.mkdir()
    for at, good in enumerate(inputs.kinds[READERS[reader][0]]):
        data = good.paths[0].read_bytes()
        data = gzip.compress(data, 1, mtime=0) if reader == "gzip" else data
        if len(data) <= _SMALL:
            (corpus / str(at)).write_bytes(data)
    return corpus


def _target(reader: str, folder: Path) -> Callable[[bytes], None]:
    from ask_mutant import Outcome, ask_profile

    from stepscope import api
    from stepscope.capture import manifest
    from stepscope.compare import baseline
    from stepscope.compare.gate import parse_limits
    from stepscope.model import declared, label_rules, taxonomy

    path = folder / READERS[reader][1]
    small: dict[str, Callable[[], object]] = {
        "compile-log": lambda: api.analyse(None, "compile", log=path),
        "labels": lambda: label_rules.load(path),
        "limits": lambda: parse_limits(path, ()),
        "model": lambda: declared.load(str(path)),
        "taxonomy": lambda: taxonomy.load(path),
        "baseline": lambda: baseline.load(path),
        "manifest": lambda: manifest.read(folder),
    }
    asked = {"ncu-csv": "roofline", "snapshot": "memory", "log": "pipeline"}.get(reader, "breakdown")

    def tried(data: bytes) -> None:
        path.write_bytes(data)
        outcome = Outcome()
        if reader in small:
            outcome.ask(reader, lambda: small[reader]() and None)
        else:
            ask_profile(outcome, (path,), [("info", {}), (asked, {})])
        if outcome.failures:
            raise AssertionError(str(outcome.failures[0]))

    return tried


if __name__ == "__main__":
    sys.exit(main())
