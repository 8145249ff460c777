"""Other programs that are run to read a file: they end where nobody wants the answer any more."""

from __future__ import annotations

import subprocess
import threading

from stepscope import progress

#: How often to look.
_LOOK_S = 0.1


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """What the program prints, once it has ended; it is killed where the block around this is left."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        texts = ["", ""]

        def read() -> None:
            texts[:] = process.communicate()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            while reader.is_alive():
                reader.join(_LOOK_S)
                progress.check()
        except BaseException:
            process.kill()
            reader.join()
            raise
    return subprocess.CompletedProcess(command, process.returncode, *texts)
