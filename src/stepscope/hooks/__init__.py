"""Steps and ranges of a program that nobody annotated: `capture run` loads this into it, and nothing is edited.

`site/sitecustomize.py` is put on the PYTHONPATH; it loads `boot`, which waits for the program to import torch. From
then on `driver` counts optimizer steps, and starts and stops the profiler between them, as `annotate.step` would. Only
the standard library, `stepscope.annotate` and `stepscope.integrations` are imported; torch is never imported from here,
only used once it is there.
"""
