"""Stand-ins for what SGLang imports and this example does not run, where it is not installed.

`pip install --no-deps sglang` beside torch, triton, msgspec, pydantic and numpy is enough then.
Where all of SGLang's requirements are installed nothing is replaced.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OPTIONAL = (
    *("IPython", "PIL", "aiohttp", "compressed_tensors", "dill", "einops", "fastapi", "gguf"),
    *("huggingface_hub", "openai", "orjson", "partial_json_parser", "psutil", "pybase64"),
    *("regex", "requests", "safetensors", "sentencepiece", "setproctitle", "starlette"),
    *("tiktoken", "tokenizers", "torchaudio", "torchvision", "tqdm", "transformers", "tvm_ffi"),
    *("uvicorn", "uvloop", "vllm", "xgrammar", "yaml", "zmq"),
)
"""Packages of SGLang's requirements."""

HOLLOW = (
    "sglang.srt.utils.hf_transformers",
    "sglang.srt.utils.hf_transformers.common",
    "sglang.srt.utils.hf_transformers.config",
    "sglang.srt.utils.hf_transformers_utils",
    "sglang.srt.layers.sampler",
    "sglang.srt.managers.schedule_batch",
)
"""SGLang's modules that need more of these packages than a name."""


class _AnyType(type):
    """The type of a stand-in class: any attribute, any subscript, any base."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyType(name, (_Any,), {})

    def __getitem__(cls, _: object) -> Any:
        return cls

    def __setitem__(cls, _: object, __: object) -> None:
        pass

    def __or__(cls, _: object) -> Any:
        return cls

    def __ror__(cls, _: object) -> Any:
        return cls


class _Any(metaclass=_AnyType):
    def __init_subclass__(cls, **_: object) -> None:
        pass

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyType(name, (_Any,), {})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        used_as_decorator = len(args) == 1 and not kwargs and callable(args[0])
        return args[0] if used_as_decorator else self


class _StandIn(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _AnyType(name, (_Any,), {"__module__": self.__name__})
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last of all finders, so that it answers only for what nothing else finds."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = frozenset(packages)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] in self.packages:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _StandIn(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def install() -> list[str]:
    """Replaces what is missing; returns what that is, nothing where all is there."""
    missing = [name for name in OPTIONAL if importlib.util.find_spec(name) is None]
    sys.meta_path.append(_Finder(missing))
    if "transformers" not in missing:
        return missing
    found = importlib.util.find_spec("sglang")
    assert found is not None
    assert found.submodule_search_locations is not None
    root = Path(found.submodule_search_locations[0])
    for name, folder in (("sglang", root), ("sglang.srt.configs", root / "srt" / "configs")):
        # Only its __init__ is left out: its modules are found.
        sys.modules[name] = _hollow(name, [str(folder)])
    for name in HOLLOW:
        sys.modules[name] = _hollow(name, [])
    sys.modules["sglang"].__version__ = "0.5.23"  # type: ignore[attr-defined]
    # It is read while process groups are made, and false by default.
    sys.modules["sglang.srt.layers.sampler"].SYNC_TOKEN_IDS_ACROSS_TP = False  # type: ignore[attr-defined]
    return [*missing, "sglang", "sglang.srt.configs", *HOLLOW]


def _hollow(name: str, path: list[str]) -> types.ModuleType:
    module = _StandIn(name)
    module.__path__ = path
    return module
