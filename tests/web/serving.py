"""A simulated job behind the server, for the tests: the answers, and a client that has the token."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from starlette.testclient import TestClient

from stepscope import api
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to
from stepscope.web.answers import Answers
from stepscope.web.app import application
from stepscope.web.run import Where, guarded
from stepscope.web.scene import Served, scene_of

TOKEN = "a-token-of-the-tests"
SHAPE: dict[str, Any] = {"pp": 2, "ep": 1, "dp": 2, "layers": 4, "micro_batches": 4, "steps": 2, "seed": 5}
TYPES = {"u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "f8": np.float64}


def simulated(folder: Path, written: str = "nsys", **more: Any) -> Path:
    scenario = Scenario(schedule="1f1b", faults=("straggler:rank=3,factor=1.5",), **{**SHAPE, **more})
    simulate_to(scenario, folder, (written,))
    return folder


def scene(folder: Path) -> Served:
    return scene_of(api.open(folder), (str(folder),))


def client(answers: Answers, *, known: bool = True, **settings: Any) -> TestClient:
    headers = {"authorization": f"Bearer {TOKEN}"} if known else {}
    app = guarded(application(answers), TOKEN, Where())
    return TestClient(app, "http://127.0.0.1:8000", headers=headers, follow_redirects=False, **settings)


def decoded(body: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The head of a block, and its columns."""
    (length,) = struct.unpack_from("<I", body)
    head = json.loads(body[4 : 4 + length])
    columns = {
        name: np.frombuffer(body, TYPES[place["type"]], place["n"], 4 + length + place["at"])
        for name, place in head["columns"].items()
    }
    return head, columns
