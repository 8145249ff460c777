"""Waits for the program to import torch, without importing it, and hands it to the driver."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

#: The module that has `Optimizer`; `import torch` imports it.
_MODULE = "torch.optim.optimizer"


class Watch:
    """A finder that finds nothing itself: it calls `ready` with the module, right after the module was executed."""

    def __init__(self, name: str, ready: Callable[[Any], None]) -> None:
        self._name, self._ready = name, ready

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path[:] = [f for f in sys.meta_path if f is not self]
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                self._after(spec.loader)
                return spec
        return None

    def _after(self, loader: Any) -> None:
        execute = loader.exec_module

        def then(module: Any) -> None:
            execute(module)
            guarded(self._ready, module)

        loader.exec_module = then


def guarded(function: Callable[..., Any], *arguments: Any) -> Any:
    """A program must not fail because it is watched."""
    try:
        return function(*arguments)
    except Exception as error:
        print(f"stepscope: no hooks: {type(error).__name__}: {error}", file=sys.stderr)
        return None


def boot() -> None:
    """Begin to watch, in a process that `capture run` started; once."""
    if os.environ.get("STEPSCOPE_CAPTURE_HOOKS", "0") == "0" or any(isinstance(f, Watch) for f in sys.meta_path):
        return
    guarded(_collect_compiler_log)
    guarded(_let_ranks_share_gpus)
    _when_imported("torch", _watch_compile)
    _when_imported(_MODULE, _install)


def _when_imported(name: str, ready: Callable[[Any], None]) -> None:
    if name in sys.modules:
        guarded(ready, sys.modules[name])
    else:
        sys.meta_path.insert(0, Watch(name, ready))


def _let_ranks_share_gpus() -> None:
    """`capture run --share-gpu`, of a trainer that takes the GPU of its local rank.

    Local ranks count the GPUs that there are over and over. NCCL refuses two ranks on one GPU of one host: it is told
    another host for each rank.
    """
    gpus, rank = int(os.environ.get("STEPSCOPE_CAPTURE_SHARE_GPU", "0")), os.environ.get("RANK")
    if gpus == 0 or rank is None:
        return
    os.environ["LOCAL_RANK"] = str(int(os.environ.get("LOCAL_RANK", rank)) % gpus)
    os.environ.setdefault("NCCL_HOSTID", f"rank{rank}")


def _collect_compiler_log() -> None:
    """Have torch.compile say why it breaks graphs and recompiles, into a file of each rank; unless TORCH_LOGS is set.

    torch reads the variables when it is imported. What a launcher set for itself is not what its ranks are to use.
    """
    folder = os.path.join(os.environ.get("STEPSCOPE_CAPTURE_OUT", "."), "compile")  # noqa: PTH118
    ours = os.environ.get("TORCH_LOGS_OUT", "").startswith(folder)
    if not ours and ("TORCH_LOGS" in os.environ or "TORCH_LOGS_OUT" in os.environ):
        return
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    rank = os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))
    os.environ["TORCH_LOGS"] = "graph_breaks,recompiles"
    os.environ["TORCH_LOGS_OUT"] = os.path.join(folder, f"rank{rank}.log")  # noqa: PTH118


def _watch_compile(torch: Any) -> None:
    from stepscope.hooks.compiling import watch_compile

    watch_compile(torch)


def _install(module: Any) -> None:
    from stepscope.hooks.driver import install

    install(module)
