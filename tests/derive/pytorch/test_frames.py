"""What a frame is, by its path."""

from __future__ import annotations

import polars as pl
import pytest

from stepscope.derive.pytorch.frames import is_user, relative


@pytest.mark.parametrize(
    ("path", "short", "user"),
    [
        ("/usr/lib/python3/dist-packages/torch/nn/functional.py", "torch/nn/functional.py", False),
        ("/opt/pytorch/pytorch/torch/optim/adamw.py", "torch/optim/adamw.py", False),
        ("/build/torch/_tensor.py", "torch/_tensor.py", False),
        ("/venv/lib/python3.12/site-packages/transformers/trainer.py", "transformers/trainer.py", True),
        ("/home/me/torch/train.py", "/home/me/torch/train.py", True),
    ],
)
def test_a_library_is_one_wherever_it_lies(path: str, short: str, user: bool) -> None:
    files = relative(pl.Series([path]))
    assert files.to_list() == [short] and is_user(files).tolist() == [user]
