"""Compiles a generated `kernels.py` for a GPU that need not be there; fails where Triton does.

Interpretation accepts Python that the compiler rejects, so both are tested. Arguments: the file,
and perhaps `accesses`: then what each kernel reads and writes must be 16 bytes wide, e4m3 8.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HOPPER = GPUTarget("cuda", 90, 32)
TYPES = {"scales": "*fp32", "input_scale": "*fp32", "gates": "*fp32", "index": "*i32"}
TYPES["places"] = "*i64"
UNALIGNED = ("values", "input_scale")


def main(path: str, accesses: bool) -> None:
    """Compiles all kernels for bfloat16 rows and a float32 weight, to start early or not."""
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec is not None
    assert spec.loader is not None
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    names = [name for name in sorted(vars(kernels)) if name.endswith("_OPERATOR")]
    for name in names:
        kernel = name.removesuffix("_OPERATOR")
        warps = vars(kernels)[kernel].warps
        for early in (True,) if accesses else (False, True):
            function = vars(kernels)[kernel.lower()]
            ptx = compile_kernel(vars(kernels)[kernel].kernel, function, warps, early)
            if accesses:
                wide(kernel, ptx)
    assert names


def compile_kernel(kernel: Any, function: Any, warps: int, early: bool) -> str:
    """Down to machine code, as the first launch would; its assembly."""
    constants = {"EPS": 1e-6, "OFFSET": 1.0, "OUTPUT_EPS": 1e-5, "OUTPUT_OFFSET": 0.5}
    constants |= {"SCALE": 0.22, "ROUNDED": True, "WIDE": False, "EARLY": early, "AGAIN": early}
    constants["LATE"] = early
    constants |= {"SLOTS": 3, "INDEXED": early, "SHARES": early}
    names = list(inspect.signature(function).parameters)
    constants = {name: value for name, value in constants.items() if name in names}
    signature: dict[str, str] = {}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    eight = "*i8" if "INT8" in kernel.__name__.upper() else "*fp8e4nv"
    for index, name in enumerate(names):
        if name in constants:
            signature[name] = "constexpr"
            continue
        number = name.endswith("stride") or name in ("start", "count")
        signature[name] = "i32" if number else _type(name)
        if name == "values":
            signature[name] = eight
        if name not in UNALIGNED:
            attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constexprs=constants, attrs=attributes)
    options = {"num_warps": warps, "launch_pdl": early, "enable_fp_fusion": False}
    ptx = triton.compile(source, target=HOPPER, options=options).asm["ptx"]
    assert ptx
    assert ("griddepcontrol.wait" in ptx) == early
    return str(ptx)


def _type(name: str) -> str:
    """The type of a pointer: parameters are float32, rows bfloat16."""
    return "*fp32" if name.endswith(("weight", "bias")) else TYPES.get(name, "*bf16")


def wide(name: str, ptx: str) -> None:
    """Fails where rows are read in less than 16 bytes or written in less than 8, but for scales."""
    moved = set(re.findall(r"(?:ld|st)\.global[\w.:]*", ptx))
    allowed = {"ld.global.v4.b32", "st.global.v4.b32", "st.global.v2.b32", "st.global.b32"}
    single = "STATIC" in name or "FINALIZE" in name  # a scale, a weight or an index
    assert moved <= allowed | ({"ld.global.b32"} if single else set()), (name, moved)
    assert {"ld.global.v4.b32", "st.global.v2.b32"} <= moved, (name, moved)


if __name__ == "__main__":
    main(sys.argv[1], "accesses" in sys.argv[2:])
