"""Compiles a generated `kernels.py` for a GPU that need not be there; fails where Triton does.

Interpretation accepts Python that the compiler rejects, so both are tested. Argument: the file.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HOPPER = GPUTarget("cuda", 90, 32)


def main(path: str) -> None:
    """Compiles all kernels for bfloat16 rows and a float32 weight."""
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec is not None
    assert spec.loader is not None
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    for norm in ("rms_norm", "layer_norm", "biased_layer_norm"):
        for name in (f"_{norm}", f"_add_{norm}"):
            if hasattr(kernels, name):
                compile_kernel(kernels, getattr(kernels, name.upper()), getattr(kernels, name))


def compile_kernel(kernels: Any, kernel: Any, function: Any) -> None:
    """Down to machine code, as the first launch would."""
    constants = {"EPS": kernels.EPS, "WIDTH": kernels.WIDTH, "BLOCK": kernels.BLOCK}
    constants |= {"ACCUMULATE": tl.float32, "SCALE": 0.22, "OFFSET": 1.0, "ROUNDED": True}
    signature = {}
    names = inspect.signature(function).parameters
    constants = {name: value for name, value in constants.items() if name in names}
    for name in names:
        if name in constants:
            signature[name] = "constexpr"
        elif name.endswith("stride"):
            signature[name] = "i32"
        else:
            signature[name] = "*fp32" if name in ("weight", "bias") else "*bf16"
    source = ASTSource(kernel, signature, constexprs=constants)
    assert triton.compile(source, target=HOPPER).asm["ptx"]


if __name__ == "__main__":
    main(sys.argv[1])
