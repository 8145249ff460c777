"""The program `stepscope`, also as `python -m stepscope`."""

from __future__ import annotations

import os
import signal


def main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # While modules are imported there is nothing to clear away, and a traceback of them helps nobody.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from stepscope.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
