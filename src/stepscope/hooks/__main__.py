"""`python -m stepscope.hooks SCRIPT …` or `-m MODULE …`: with the hooks, where the PYTHONPATH is out of reach."""

from __future__ import annotations

import runpy
import sys

from stepscope.hooks.boot import boot


def main() -> None:
    arguments = sys.argv[1:]
    if not arguments or arguments == ["-m"]:
        sys.exit("usage: python -m stepscope.hooks SCRIPT [ARGUMENT...] | -m MODULE [ARGUMENT...]")
    boot()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(__import__("pathlib").Path(arguments[0]).resolve().parent))
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main()
