"""Kernel names as a person says them: `vectorized_elementwise_kernel<MulFunctor>`, not six lines of template arguments.

Return type, parameters, the namespaces of PyTorch's internals and template arguments go; of the arguments only what
says the work stays: a functor, or the function whose lambda it is. A wrapper (`cutlass::Kernel<…>`) gives way to what
it wraps, and generated names (cuDNN, xmma, Tensile) lose their tuning suffix. Several full names may share a short one.
"""

from __future__ import annotations

import re
from functools import cache

import polars as pl

from stepscope.model.demangle import demangle

_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::|_GLOBAL__N_\w+::")
#: Looking back, so that spaces are read once: names of a file may be a megabyte of them.
_CLONE = re.compile(r"(?<!\s)\s*\[clone [^\]]*\]|(?<!\s)\s*\(\.\w+\)$")
#: Namespaces that tell nothing: PyTorch's internals, inline version namespaces, implementation details.
_DULL = re.compile(
    r"^(at|native|c10|cuda|hip|detail|internal|impl|std|__\d+|__1|templates|ops|kernel|device|at_cuda_detail"
    r"|CUB_\w+|THRUST_\w+|_V\d|fusion|cnn)$"
)
#: A name that says nothing without the one before it.
_BARE = re.compile(r"^(kernel|Kernel|run|main|apply|globalKernel|operator)$")
#: Wrappers whose (first) argument is the kernel.
_WRAPPER = re.compile(r"^(cutlass\w*::)?(Kernel|Kernel2|device_kernel|DeviceKernel)$|^kernel_cutlass")
_FUNCTOR = re.compile(r"\b(\w*[Ff]unctor\w*|\w+Ops?|\w+_functor)\b")
_DULL_FUNCTOR = re.compile(
    r"^([AB]?UnaryFunctor|BinaryFunctor|ReduceOp|TernaryFunctor|\w*[Ff]unctor_t|func_wrapper_t)$"
)
#: Functors of `foreach` kernels say the shape of the operation; the operator beside them says the operation.
_OPERATOR = re.compile(
    r"\bstd::(plus|minus|multiplies|divides|modulus|negate)\b|\b(Copy|Identity|Lerp\w*|Sqrt|Abs|Neg)<"
)
#: The end of a word just before an opening bracket.
_LAST_WORD = re.compile(r"([A-Za-z_]\w*)$")
#: The end of a function's parameters, when a lambda inside it follows.
_LAMBDA = re.compile(r"\)\s*(?:const)?::[\[{']")
_DULL_FUNCTION = re.compile(r"^(gpu_(index_)?kernel|operator$)")
_GENERATED = (
    (re.compile(r"^cudnn_generated_(fort_native_)?"), "cudnn_"),
    (re.compile(r"_knob_\d+"), ""),
    (re.compile(r"_cga\d+x\d+x\d+.*$"), ""),
    (re.compile(r"_stage\d+_warp.*$|_warpgroupsize.*$|_execute_\w*kernel.*$"), ""),
    (re.compile(r"^(Cijk_\w+?_(?:[A-Z]+\d*_)*?)UserArgs_"), r"\1"),
    (re.compile(r"^(Cijk_\w*?MT\d+x\d+x\d+)_.*$"), r"\1"),
)


def short_names(names: pl.Series) -> pl.Series:
    """Short forms of `names`, one by one; nulls stay."""
    short = {t: shorten(t) for t in names.drop_nulls().unique().to_list()}
    return names.replace(short) if short else names


@cache
def shorten(name: str) -> str:
    """The short form of a kernel's name. Anything that is not a C++ name comes back as it is."""
    if name.startswith("["):  # [memcpy HtoD], [graph 4]
        return name
    text = _CLONE.sub("", _ANONYMOUS.sub("", demangle(name))).strip()
    head, arguments = _head(text)
    if not head:
        return name
    base = _trimmed(head)
    if arguments is not None and _WRAPPER.match(base):
        wrapped = shorten(_first(arguments))
        return wrapped if "_" in wrapped or "::" in wrapped else f"{base}<{wrapped}>"
    for pattern, by in _GENERATED:
        base = pattern.sub(by, base)
    work = _work(arguments) if arguments is not None else None
    return f"{base}<{work}>" if work and work != base else base


@cache
def function_name(name: str) -> str:
    """The bare name of the function, without namespaces, templates and parameters: what ncu filters kernels by."""
    text = _CLONE.sub("", _ANONYMOUS.sub("", demangle(name))).strip()
    head, _ = _head(text)
    return head.rsplit("::", 1)[-1] or name


def kernel_base(name: str) -> str:
    """A full C++ kernel name as `kernels` shows it; texts that are short already, or no kernels, as they are."""
    return shorten(name) if name.startswith("void ") or ("<" in name and name.endswith(")")) else name


def _head(text: str) -> tuple[str, str | None]:
    """Qualified name, and its template arguments (None without any), of `type name<arguments>(parameters)`."""
    depth, first, opened, arguments = 0, 0, -1, None
    plain: list[str] = []
    for i, c in enumerate(text):
        if c in "<" and not text.startswith(("<<", "<="), i):
            if depth == 0:
                opened = i
            depth += 1
        elif c == ">" and depth and text[i - 1] != "-":
            depth -= 1
            if depth == 0:
                arguments = text[opened + 1 : i]
        elif depth == 0:
            if c == " ":
                if text[i + 1 : i + 2] in ("(", "[", ""):
                    continue
                first, arguments, plain = i + 1, None, []  # what came before was the return type
            elif c == "(" and i > first:
                break
            else:
                if arguments is not None and c == ":" and plain and plain[-1] != ":":
                    arguments = None  # arguments of a class around it
                plain.append(c)
    return "".join(plain), arguments


def _trimmed(head: str) -> str:
    parts = [p for p in head.split("::") if p]
    if not parts:
        return head
    last = len(parts) - (2 if _BARE.match(parts[-1]) and len(parts) > 1 else 1)
    kept = [p for p in parts[:last] if not _DULL.match(p)]
    return "::".join([*kept[-1:], *parts[last:]])


def _first(arguments: str) -> str:
    """The first template argument, without the parameters it would have as a function."""
    depth = 0
    for i, c in enumerate(arguments):
        depth += (c in "<([{") - (c in ">)]}")
        if c == "," and depth == 0:
            return arguments[:i].strip()
    return arguments.strip()


def _work(arguments: str) -> str | None:
    """What the template arguments say about the work: functors, else the function whose lambda was passed."""
    functors = list(dict.fromkeys(_FUNCTOR.findall(arguments)))
    telling = [f for f in functors if not _DULL_FUNCTOR.match(f)]
    if telling:
        operator = _OPERATOR.search(arguments)
        beside = next((g for g in operator.groups() if g), None) if operator else None
        return f"{telling[0]}, {beside}" if beside and beside != telling[0] else telling[0]
    found = (_function_before(arguments, m.start()) for m in _LAMBDA.finditer(arguments))
    functions = [f for f in found if f and not _DULL_FUNCTION.match(f)]
    if functions:
        return functions[0]
    return functors[0] if functors else None


def _function_before(text: str, close: int) -> str | None:
    """Name of the function whose parameters end at `close`: back over them and over its template arguments."""
    at = _opening(text, close, "()")
    while at > 0 and text[at - 1] == " ":
        at -= 1
    if at > 0 and text[at - 1] == ">":
        at = _opening(text, at - 1, "<>")
    match = _LAST_WORD.search(text, 0, max(at, 0))
    return match[1] if match else None


def _opening(text: str, close: int, pair: str) -> int:
    """Where the bracket that closes at `close` opens; 0 where it never does."""
    depth = 0
    for i in range(close, -1, -1):
        depth += (text[i] == pair[1]) - (text[i] == pair[0])
        if depth == 0:
            return i
    return 0
