"""Makes test data of what captures.py brought: scrubbed, without the log, one small archive each.

    python pack.py OUT CAPTURE.tar.xz ...

Traces of torch.profiler lie in the archive as gzip without compression: xz does better on the text itself.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "moe_reference"))
import scrub
from captures import ORDER

#: Captures of more steps than these keep no operators that launch nothing.
_MANY = 5


def packed(source: Path, out: Path) -> int:
    program, _, fault = source.name.partition(".")[0].partition("-")
    light = 0 < ORDER.get(f"{program}:{fault}", 0) <= _MANY
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
        (folder / "log.txt").unlink(missing_ok=True)
        if program == "ranks_trainer":
            _without_some_ranks(folder, fault)
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                _scrubbed(path, light)
        target = out / source.name
        with lzma.open(target, "wb", preset=6) as raw, tarfile.open(fileobj=raw, mode="w") as archive:
            for path in sorted(p for p in folder.rglob("*") if p.is_file()):
                # A host that is called `vm` says nothing; the name is still not the reader's business.
                info = tarfile.TarInfo(str(path.relative_to(folder)).replace(".vm.", ".host0."))
                data = path.read_bytes()
                if path.name == "manifest.json":
                    data = data.replace(b".vm.", b".host0.").replace(b'"host": "vm"', b'"host": "host0"')
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return target.stat().st_size


def _without_some_ranks(folder: Path, fault: str) -> None:
    """Traces of torch.profiler of all ranks would be some MB: two are kept, one of them that with the fault."""
    own = re.search(r"-on-rank-(\d+)$", fault)
    kept = {0, int(own[1]) if own and own[1] != "0" else 1}
    for path in folder.glob("rank*.pt.trace.json.gz"):
        if int(path.name.removeprefix("rank").partition(".")[0]) not in kept:
            path.unlink()


def _scrubbed(path: Path, light: bool) -> None:
    if path.name.endswith(".gz"):
        scrub.scrub_kineto(path, thin=not light, light=light)
        text = gzip.decompress(path.read_bytes())
        with path.open("wb") as raw, gzip.GzipFile("", "wb", 0, raw, mtime=0) as file:
            file.write(text)
    elif path.suffix == ".sqlite":
        scrub.scrub_sqlite(path)
    else:
        scrub.scrub_text(path)


def main() -> int:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for source in map(Path, sys.argv[2:]):
        print(source.name, packed(source, out), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
