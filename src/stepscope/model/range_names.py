"""Names of ranges as a sentence has them: `aten::stack`, not a screen of op ids and sizes.

What torch writes behind the name of an op (`, seq = 4, op_id = 7, sizes = [[], …`) and around a compiled graph
(`## Call CompiledFxGraph fjs2i… ##`) goes; what is still too long loses its middle. Rows keep the whole text.
"""

from __future__ import annotations

import re

from stepscope.model.kernel_names import kernel_base

#: Characters of a name that a sentence can bear.
MOST = 60
#: Ranges around getting a batch.
INPUT_RANGE = (
    r"(?i)(^|[^a-z])(data|dataloader|data_?load\w*|batch|fetch\w*|input\w*|next_?batch|loader)([^a-z]|$)|DataLoader"
)
#: Ranges around a collection of Python's garbage.
GARBAGE = r"(?i)(^|[^a-z0-9])(gc|python[ _]?gc|gc[._ ]?collect\w*|garbage[ _-]?collect\w*)([^a-z0-9]|$)"
#: Ranges around compiling.
COMPILING = r"(?i)compile_fx|dynamo|inductor|autotun|xlacompile|backendcompile|torch\.compile|compile_inner"
#: What `torch.autograd.profiler.emit_nvtx` appends to the name of an op, shapes included.
#: Ranges that nsys and torch.autograd.profiler.emit_nvtx write around every torch op.
TORCH_OP = r", (?:seq|op_id) = \d+"
#: The same, and the dictionaries that pyprof and DLProf write: a tool that notes a call names nothing of the program's.
RECORD = rf"{TORCH_OP}|^\{{['\"]"
_TORCH_SUFFIX = re.compile(r",\s*(?:seq|op_id|sizes|input_op_ids|input_sizes|thread)\s*=.*$", re.DOTALL)
#: Inductor names a graph by a hash of 52 characters.
_GRAPH = re.compile(r"^#*\s*(Call CompiledFxGraph) (\w{5})\w*\s*#*$")


def bare_name(text: str) -> str:
    """The text without what torch appends; a kernel's name as `kernels` has it. For cells of a table."""
    match = _GRAPH.match(text)
    return f"{match[1]} {match[2]}…" if match else kernel_base(_TORCH_SUFFIX.sub("", text))


def short_range(text: str, most: int = MOST) -> str:
    """The text on one line, and no longer than a sentence can bear: the middle goes."""
    bare = bare_name(" ".join(text.split()))
    if len(bare) <= most:
        return bare
    head = (most - 1) // 2
    return f"{bare[:head].rstrip()}…{bare[len(bare) - (most - 1 - head) :].lstrip()}"
