"""Reports (`.nsys-rep`): exported by the user's own nsys, into a directory of ours."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from stepscope.errors import BadInput
from stepscope.files import programs


def need_nsys(program: str) -> None:
    """One line where there is no such program."""
    if shutil.which(program) is None:
        raise BadInput(f"--nsys {program}: no such program", "give the path of nsys, or leave --nsys out")


#: NCCL's payloads are exported only on request, by versions that know how.
_PAYLOAD_FLAGS = ("--include-blobs", "--include-json")


def export_report(report: Path, into: Path, nsys: str | Path | None = None) -> Path:
    """The SQLite export of a report, written to the directory `into`."""
    if not report.is_file():
        raise BadInput(f"{report}: no such file", "check the path")
    program = _find(report, nsys)
    version = _version(program)
    output = into / f"{report.stem}.sqlite"
    usage = _run([program, "export", "--help"]).stdout
    command = [program, "export", "--type=sqlite", "--force-overwrite=true", f"--output={output}"]
    command += [f"{flag}=true" for flag in _PAYLOAD_FLAGS if flag in usage]
    done = _run([*command, str(report)])
    if done.returncode != 0 or not output.is_file():
        output.unlink(missing_ok=True)
        raise BadInput(
            f"{report}: nsys {version} cannot export this report ({_reason(done)})",
            "it may be damaged or recorded by a newer nsys: give that one with --nsys PATH",
        )
    return output


def _find(report: Path, nsys: str | Path | None) -> str:
    program = shutil.which(str(nsys or "nsys"))
    if program is None:
        raise BadInput(
            f"{report}: a report needs nsys to be exported, and {nsys or 'nsys'} was not found",
            "give its path with --nsys PATH, or export where it is installed: nsys export --type=sqlite "
            "--include-blobs=true REPORT",
        )
    return program


def _version(program: str) -> str:
    match = re.search(r"version (\d+(?:\.\d+)+)", _run([program, "--version"]).stdout)
    return match[1] if match else "(unknown version)"


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return programs.run(command)
    except OSError as error:
        raise BadInput(f"{command[0]}: cannot be run ({error.strerror})", "give nsys with --nsys PATH") from error


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """The first line that says what went wrong."""
    lines = [line.strip() for line in (done.stderr + "\n" + done.stdout).splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"error|fail|version|unsupported|cannot", line, re.IGNORECASE)]
    return (telling or lines or [f"exit status {done.returncode}"])[0][:160]
