"""Compiles a generated `hyper_kernels.py` for a GPU that need not be there; fails where that does.

Argument: the file. Prints how each moves memory.
"""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

import triton
from compile_program import HOPPER
from hyper_program import imported
from triton.compiler import ASTSource

FLOATS = ("mix", "post", "pre", "weight", "bias", "scales", "input_scale", "partial", "fn", "base")
UNALIGNED = ("values", "input_scale")


def main(path: str) -> None:
    """All kernels, for bfloat16 rows and float32 parameters."""
    kernels = imported(path)
    names = [name for name in vars(kernels) if name.endswith("_OPERATOR")]
    for name in sorted(names):
        kernel = name.removesuffix("_OPERATOR")
        compiled(vars(kernels)[kernel], vars(kernels)[kernel.lower()])
    if hasattr(kernels, "_PROJECT"):
        for updates in (False, True):
            compiled(kernels._PROJECT, kernels._project, UPDATES=updates)
        compiled(kernels._MAPS, kernels._maps)
    assert names


def compiled(launcher: Any, function: Any, **constants: object) -> None:
    """Down to machine code, as the first launch would, with the registers that it has."""
    constants = {"EPS": 1e-6, "OFFSET": 1.0, **constants, "EARLY": True}
    names = list(inspect.signature(function).parameters)
    constants = {name: value for name, value in constants.items() if name in names}
    small = "*i8" if "int8" in function.__name__ else "*fp8e4nv"
    own = {"rows": "i32", "values": small} | dict.fromkeys(constants, "constexpr")
    of_maps = ("scale",) if function.__name__ == "_maps" else ()
    signature = {
        name: own.get(name, "*fp32" if name in (*FLOATS, *of_maps) else "*bf16") for name in names
    }
    aligned: dict[tuple[int, ...], list[list[Any]]] = {
        (at,): [["tt.divisibility", 16]]
        for at, name in enumerate(names)
        if signature[name].startswith("*") and name not in UNALIGNED
    }
    how: dict[str, object] = {"num_warps": launcher.warps, "maxnreg": launcher.registers}
    how |= {"launch_pdl": True, "enable_fp_fusion": False}
    source = ASTSource(launcher.kernel, signature, constexprs=constants, attrs=aligned)
    made = triton.compile(source, target=HOPPER, options=how)
    assert "griddepcontrol.wait" in made.asm["ptx"]
    moved = sorted(set(re.findall(r"(?:ld|st)\.global[\w.:]*", made.asm["ptx"])))
    sys.stdout.write(f"{function.__name__} compiles: {' '.join(moved)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
