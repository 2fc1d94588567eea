"""Ranks of vLLM on the CPU: its configuration, its process groups, its forward contexts."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

RANKS = 2


def prepare() -> None:
    """What vLLM reads when it is imported: a CPU, although the wheel may be CUDA's."""
    os.environ["VLLM_TARGET_DEVICE"] = "cpu"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def on_ranks(program: Callable[[int, Path], None], folder: Path, *, limit_s: float = 900.0) -> None:
    """Forks `RANKS` ranks that run ``program(rank, folder)``; vLLM is imported before, once.

    SystemExit where one fails or takes too long; the others, which wait for it, are killed.
    """
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=_rank, args=(program, at, folder)) for at in range(RANKS)]
    for one in ranks:
        one.start()
    deadline = time.monotonic() + limit_s
    while any(one.is_alive() for one in ranks) and time.monotonic() < deadline:
        if any(one.exitcode for one in ranks):
            break
        time.sleep(0.1)
    codes = [one.exitcode for one in ranks]
    for one in ranks:
        one.kill()
        one.join()
    if any(codes) or None in codes:
        raise SystemExit(f"exit codes of the ranks: {codes}")


def _rank(program: Callable[[int, Path], None], rank: int, folder: Path) -> None:
    from vllm.distributed.parallel_state import init_distributed_environment

    torch.set_num_threads(1)
    init_distributed_environment(
        world_size=RANKS,
        rank=rank,
        local_rank=rank,
        distributed_init_method=f"file://{folder}/store",
        backend="gloo",
    )
    # Some of vLLM's functions are compiled wherever they are called, which needs a C++ compiler.
    with torch.compiler.set_stance("force_eager"), torch.inference_mode():
        program(rank, folder)
    dist.destroy_process_group()
    gc.collect()


@contextmanager
def layout(*, tp: int = 1, dp: int = 1, rank: int = 0, ep: bool = False) -> Iterator[Any]:
    """VLLM's configuration and groups of TP and DP; they are destroyed in the end.

    ``rank`` is the DP rank. Inside it vLLM's layers can be made.
    """
    from vllm.config import (
        CompilationConfig,
        CompilationMode,
        DeviceConfig,
        ParallelConfig,
        VllmConfig,
        set_current_vllm_config,
    )
    from vllm.distributed import parallel_state

    config = VllmConfig(
        parallel_config=ParallelConfig(
            tensor_parallel_size=tp,
            data_parallel_size=dp,
            data_parallel_rank=rank,
            enable_expert_parallel=ep,
        ),
        device_config=DeviceConfig("cpu"),
        compilation_config=CompilationConfig(mode=CompilationMode.NONE),
    )
    with set_current_vllm_config(config):
        parallel_state.initialize_model_parallel(tp)
        try:
            yield config
        finally:
            parallel_state.destroy_model_parallel()
