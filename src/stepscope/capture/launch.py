"""The exact command line of a capture: profiler, launcher, training command."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from stepscope.capture import manifest, wants
from stepscope.capture.nsys import Nsys
from stepscope.capture.slurm import Allocation
from stepscope.capture.spec import NVTX_TRIGGER, PREFIX, Spec

#: Folder of torchrun's own logs, beside the capture's files until these are in place.
LOGS = "torchrun"


@dataclass(frozen=True)
class Launch:
    """A command with the variables it needs; `files` are to be written first."""

    argv: tuple[str, ...]
    env: dict[str, str]
    files: dict[Path, str]
    cwd: Path | None = None

    def text(self) -> str:
        """Ready to paste."""
        made = [
            f"cat > {shlex.quote(str(p))} <<'EOF'\n{t}EOF\nchmod +x {shlex.quote(str(p))}"
            for p, t in self.files.items()
        ]
        variables = [f"{k}={shlex.quote(v)}" for k, v in sorted(self.env.items())]
        made.insert(0, f"mkdir -p {shlex.quote(self.env[PREFIX + 'OUT'])}")
        where = [f"cd {shlex.quote(str(self.cwd))}"] if self.cwd else []
        return "\n".join([*made, *where, " ".join(["env", *variables, shlex.join(self.argv)])])


def launch(spec: Spec, backend: str, out: Path, token: str, job: Allocation | None) -> Launch:
    """How to run `spec` under one backend; files are written to `out`."""
    env = spec.environment(backend, out, token)
    if spec.share_gpu:
        env[PREFIX + "SHARE_GPU"] = str(manifest.visible_gpus())
    spec = replace(spec, command=tuple(word.replace("{out}", str(out)) for word in spec.command))
    command = list(spec.command)
    files = {out / name: text for name, text in spec.scripts.items()}
    if spec.nproc:
        command = torchrun(spec, out / LOGS, job)
    several = job is not None and not spec.nproc and not _starts_ranks(spec.command)
    if backend == "nsys":
        if several:
            command = [*nsys_profile(spec, out / "rank%q{SLURM_PROCID}.%h"), *command]
        elif spec.per == "rank":
            # torchrun starts this in place of Python, once for each rank.
            wrapper = out / "under-nsys.sh"
            each = shlex.join(nsys_profile(spec, out / "rank%q{RANK}.%h"))
            files[wrapper] = f'#!/bin/sh\nexec {each} "${{STEPSCOPE_PYTHON:-python3}}" "$@"\n'
            env["PYTHON_EXEC"] = str(wrapper)
            env["STEPSCOPE_PYTHON"] = _python(spec)
        else:
            node = "%q{SLURM_NODEID}" if job is not None else "0"
            command = [*nsys_profile(spec, out / f"node{node}.%h"), *command]
    if job is not None:
        # One launcher per node; a command that launches no ranks is itself one, as often as the allocation says.
        count = [] if several else ["--ntasks-per-node=1"]
        command = ["srun", f"--nodes={job.nodes}", *count, "--kill-on-bad-exit=1", "--export=ALL", *command]
    return Launch(tuple(command), env, files, spec.cwd)


def torchrun(spec: Spec, logs: Path, job: Allocation | None) -> list[str]:
    """torchrun around a plain `python train.py` or `train.py`. Without `logs`, it would log to the temporary folder."""
    command = list(spec.command)
    python = [command.pop(0)] if Path(command[0]).name.startswith("python") else ["python3"]
    nodes = job.nodes if job is not None else 1
    made = [*python, "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--nproc-per-node={spec.nproc}"]
    made.append(f"--log-dir={logs}")
    if job is None:
        return [*made, "--master-addr=127.0.0.1", f"--master-port={spec.port}", *command]
    where = f"--rdzv-endpoint={job.first_host}:{spec.port}"
    return [*made, "--rdzv-backend=c10d", where, f"--rdzv-id={job.job}", *command]


def nsys_profile(spec: Spec, output: Path) -> list[str]:
    """nsys with what the analyses need and nothing that only makes the report large."""
    there = Nsys.there(spec.nsys) if spec.wants else None
    wanted = wants.nsys_options(spec.wants, there)
    made = [spec.nsys, "profile", f"--trace={wants.traces(spec.wants, spec.trace)}", *wanted]
    if "cuda" in spec.trace.split(","):
        made.append("--cuda-graph-trace=node")
    made += [*_trigger(spec), "--kill=none", "--force-overwrite=false", f"--output={output}"]
    return [*made, *spec.nsys_args]


def _trigger(spec: Spec) -> list[str]:
    """What starts and stops nsys."""
    if spec.trigger == "none":
        return []
    if spec.time is not None:
        start, length = spec.time  # even a delay of 0 is one: a short program may be over before
        return [*([f"--delay={start:g}"] if start else []), f"--duration={length:g}"]
    end = f"--capture-range-end={'repeat' if spec.every else 'stop'}"
    if spec.trigger == "cuda":
        return ["--capture-range=cudaProfilerApi", end]
    name = spec.trigger.removeprefix("nvtx").removeprefix("=") or NVTX_TRIGGER
    return ["--capture-range=nvtx", f"--nvtx-capture={name}@*", end]


def _starts_ranks(command: tuple[str, ...]) -> bool:
    """Whether the command is itself a launcher of ranks."""
    return Path(command[0]).name in ("torchrun", "mpirun", "mpiexec", "accelerate", "deepspeed") or (
        "torch.distributed.run" in command or "torch.distributed.launch" in command
    )


def _python(spec: Spec) -> str:
    first = spec.command[0]
    return first if Path(first).name.startswith("python") else "python3"
