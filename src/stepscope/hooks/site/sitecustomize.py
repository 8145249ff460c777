"""Loaded by every Python that `capture run` starts, as its folder is first on the PYTHONPATH.

It loads the sitecustomize that Python would have loaded without it, and then the hooks of stepscope. Only stepscope's
own files are made importable: the folder they lie in may hold packages of another Python.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (pathlib would slow every start of Python)
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))  # noqa: PTH120


def _next() -> None:
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != _HERE]  # noqa: PTH100
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if own is not None:
            sys.modules.setdefault("sitecustomize", own)


class _Finder:
    """Finds stepscope in the folder that this file lies in, and nothing else there."""

    @staticmethod
    def find_spec(name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != "stepscope":
            return None
        from importlib.util import spec_from_file_location

        file = os.path.join(_PACKAGE, "__init__.py")  # noqa: PTH118
        return spec_from_file_location(name, file, submodule_search_locations=[_PACKAGE])


def _boot() -> None:
    if os.environ.get("STEPSCOPE_CAPTURE_BACKEND"):
        sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type, unused-ignore]
        try:
            from stepscope.hooks.boot import boot

            boot()
        except Exception as error:  # the program must run in any case
            print(f"stepscope: no hooks: {type(error).__name__}: {error}", file=sys.stderr)


try:
    _next()
finally:
    _boot()
