"""Pickles that were not written by torch: refused in one line, quickly, with nothing run and little memory used."""

from __future__ import annotations

import gzip
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope import BadInput, api
from stepscope.errors import StepscopeError

DATA = Path(__file__).parents[2] / "data" / "h200" / "memory"
#: A pickle that begins as a snapshot does: `{"segments": …`.
FRONT = b"\x80\x04}\x94(\x8c\x08segments\x94"


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


#: The most memory that a process had, in bytes. `ru_maxrss` would count what its parent had before `exec`.
MOST = "int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) * 1024"
needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


def printed(code: str) -> int:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


def refused(path: Path) -> str:
    with pytest.raises(BadInput) as error:
        api.open(path, cache=False).table("allocations")
    text = str(error.value)
    assert str(path) in text and "\n" not in text
    return text


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("place", ["alone", "segments", "frames", "key"])
def test_a_call_is_refused_and_not_made(tmp_path, place, protocol):
    marker = tmp_path / "ran"
    evil = Evil(marker)
    value = {
        "alone": evil,
        "segments": {"segments": [evil]},
        "frames": {"segments": [], "device_traces": [[{"action": "alloc", "frames": evil}]]},
        "key": {"segments": {evil: 1}},
    }[place]
    path = tmp_path / "evil.pickle"
    path.write_bytes(pickle.dumps(value, protocol))
    text = refused(path)
    assert not marker.exists()
    assert "not an allocator snapshot" in text if place == "alone" else "nothing was run" in text


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"]" * 1_000_000, "nested too deeply"),
        (b"](" * 1_000_000, "nested more than"),
        (b"}(" * 1_000_000, "nested more than"),
        (b")" + b"\x85" * 1_000_000, "tuple of containers"),
        (b"K\x00" * 8_000_000, "nested too deeply"),
        (b"K\x00" + b"\x94" * 30_000_000, "numbers more values"),
        (b"]" + b"}\x94a" * 500_000, "keeps over"),
        (b"\x8d" + b"\xff" * 7 + b"\x7f", "a text of"),
        (b"X\xff\xff\xff\x7f", "a text of"),
        (b"\x8a\xff" + b"\xff" * 255, "more than 64 bits"),
        (b"]r\xff\xff\xff\xff", "memo out of order"),
        (b"]\x94(K\x01", "cut short"),
        (b"h\xff", "cut short"),
        (b"K\x01e", "not a valid pickle"),
        (b"N(K\x01K\x02u", "not a valid pickle"),
        (b"B\x01\x00\x00\x00a", "which no snapshot has"),
        (b"cos\nsystem\n", "could run code"),
        (b"\x8c\x02os\x94\x8c\x06system\x94\x93", "could run code"),
        (b"Pid\n", "persistent id"),
    ],
    ids=range(19),
)
def test_what_cannot_be_is_refused(tmp_path, body, why):
    path = tmp_path / "odd.pickle"
    path.write_bytes(FRONT + body)
    assert why in refused(path)


def test_an_event_cannot_be_referred_to_again(tmp_path):
    shared = {"action": "alloc", "addr": 1, "size": 2, "time_us": 3, "frames": []}
    path = tmp_path / "odd.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[shared], [shared]]}))
    assert "a second time" in refused(path)


@needs_proc
def test_the_depth_of_a_bomb_costs_no_memory(tmp_path):
    """In a process of its own, with a bound on its memory: what is open is bounded, whatever the file says."""
    path = tmp_path / "odd.pickle"
    path.write_bytes(FRONT + b"]" * 50_000_000)
    code = (
        "import stepscope\n"
        f"try: stepscope.open({str(path)!r}, cache=False).table('blocks')\n"
        "except stepscope.BadInput: pass\n"
        f"print({MOST})"
    )
    assert printed(code) < 400e6


@needs_proc
@pytest.mark.slow
def test_a_large_snapshot_is_streamed(tmp_path):
    """A hundred megabytes of events need a fraction of that: some 70 bytes an event, where the file has 330."""
    frames = [{"name": f"f{i}", "filename": "model.py", "line": i} for i in range(50)]
    event = {"action": "alloc", "addr": 1 << 45, "size": 1 << 20, "stream": 0, "time_us": 1 << 50, "user_metadata": ""}
    stacks = [[frames[(i * j) % 50] for j in range(50)] for i in range(40)]
    events = [{**event, "addr": event["addr"] + 512 * i, "frames": list(stacks[i % 40])} for i in range(150_000)]
    path = tmp_path / "large.pickle"
    with path.open("wb") as file:
        pickle.dump({"segments": [], "device_traces": [events]}, file)
    size = path.stat().st_size
    del events
    code = (
        "import stepscope\n"
        f"p = stepscope.open({str(path)!r}, cache=False)\n"
        f"before = {MOST}\n"
        "assert p.table('allocations').height == 150_000 and p.table('stacks')['chain'].n_unique() == 40\n"
        f"print({MOST} - before)"
    )
    assert printed(code) < size


#: What a damaged file may hold in any place.
VALUES = (None, -1, 0, 2**40, 2**62, -(2**63), "x", 1.5, True, [], {}, (), float("nan"), "alloc", "free_completed")


@pytest.mark.parametrize("seed", range(40))
def test_damaged_snapshots_end_in_an_answer_or_one_line(seed, tmp_path):
    """Bytes flipped, or values of any type in any place of a real snapshot: no figure is below zero."""
    r = random.Random(seed)
    raw = gzip.decompress((DATA / "qwen3_oom.snapshot.pickle.gz").read_bytes())
    path = tmp_path / "damaged.pickle"
    if seed % 2:
        mutant = bytearray(raw)
        for _ in range(r.randint(1, 8)):
            mutant[r.randrange(20, len(raw))] = r.randrange(256)
        path.write_bytes(mutant[: r.randrange(len(raw)) if seed % 10 == 1 else None])
    else:
        value = pickle.loads(raw)  # ours
        for _ in range(r.randint(1, 30)):
            item = r.choice([*value["device_traces"][0], *value["segments"], *value["segments"][0]["blocks"]])
            item[r.choice([k for k in item if k != "blocks"])] = r.choice(VALUES)
        path.write_bytes(pickle.dumps(value))
    try:
        profile = api.open(path, cache=False)
        for by in ("part", "frame", "time", "stall", "change"):
            rows = profile.memory(by=by).rows
            sizes = [c for c in rows.columns if c.endswith("bytes") and c != "saves_bytes"]
            assert all((rows[c].min() or 0) >= 0 for c in sizes)
    except StepscopeError as error:
        assert "\n" not in str(error)
