"""One rank's SGLang on the CPU: its configuration, its process groups, its batches."""

from __future__ import annotations

import os
import warnings
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from examples.engines.sglang import standins


def start(rank: int, ranks: int, address: str, **arguments: Any) -> None:
    """Publishes server arguments and makes all groups over gloo, as SGLang does at its start.

    ``address`` is where the ranks meet (host:port); ``arguments`` are `ServerArgs`.
    """
    os.environ["SGLANG_USE_MESSAGE_QUEUE_BROADCASTER"] = "0"  # it needs zmq
    warnings.simplefilter("ignore")
    standins.install()
    # First: it settles the order of SGLang's own imports.
    from sglang.srt.distributed import parallel_state
    from sglang.srt.layers import dp_attention
    from sglang.srt.layers.rotary_embedding import base as rotary
    from sglang.srt.model_executor import forward_batch_info
    from sglang.srt.model_executor.cuda_graph_config import CudaGraphConfig
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import ServerArgs

    server = ServerArgs(
        model_path="dummy",
        device="cpu",
        tp_size=ranks,
        disable_custom_all_reduce=True,
        cuda_graph_config=CudaGraphConfig(),
        **arguments,
    )
    publish(server, role="test", ranks=SpawnRanks(world_rank=rank))
    parallel_state.set_custom_all_reduce(False)
    parallel_state.init_distributed_environment(
        world_size=ranks,
        rank=rank,
        local_rank=rank,
        distributed_init_method=f"tcp://{address}",
        backend="gloo",
    )
    parallel_state.initialize_model_parallel(backend="gloo")
    # What SGLANG_USE_CPU_ENGINE would set, which wants the kernels of sgl_kernel: rotary positions
    # in torch, and batches in memory that is not pinned.
    rotary._is_cpu = forward_batch_info._is_cpu = True
    if arguments.get("enable_dp_attention"):
        dp_attention.initialize_dp_attention(server)


def forward_batch(lengths: list[list[int]], rank: int, hidden_size: int) -> Any:
    """The `ForwardBatch` of a prefill of requests of some lengths, for each attention DP group.

    Under attention DP SGLang pads it as before every forward, by `prepare_mlp_sync_batch`.
    """
    from sglang.srt.layers.dp_attention import init_dp_gathered_buffer
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode

    groups = len(lengths)
    own = lengths[rank * groups // dist.get_world_size()]  # attention TP is innermost
    counts = [sum(group) for group in lengths]
    tokens, requests = sum(own), len(own)
    zeros = torch.zeros(tokens, dtype=torch.int64)
    positions = [torch.arange(length) for length in own]
    batch = ForwardBatch(
        forward_mode=ForwardMode.EXTEND if tokens else ForwardMode.IDLE,
        batch_size=requests,
        input_ids=zeros,
        req_pool_indices=torch.zeros(requests, dtype=torch.int64),
        seq_lens=torch.tensor(own, dtype=torch.int64),
        out_cache_loc=zeros,
        seq_lens_sum=tokens,
        positions=torch.cat(positions) if positions else zeros,
        extend_seq_lens_cpu=own,
        is_extend_in_batch=True,
    )
    if groups > 1:
        model = _model(hidden_size)
        init_dp_gathered_buffer(model)
        batch.global_num_tokens_cpu = batch.global_num_tokens_for_logprob_cpu = counts
        batch.global_num_tokens_gpu = torch.tensor(counts)
        batch.prepare_mlp_sync_batch(_Runner(model))
    return batch


def _model(hidden_size: int) -> Any:
    """What batches ask of SGLang's `ModelConfig`: a plain decoder in float32."""
    hf_config = SimpleNamespace()
    hf_config.get_text_config = lambda: hf_config
    return SimpleNamespace(
        hf_config=hf_config,
        hidden_size=hidden_size,
        dtype=torch.float32,
        is_draft_model=False,
        linear_attn_registry_result=None,
    )


class _Runner:
    """What `prepare_mlp_sync_batch` asks of SGLang's model runner."""

    is_draft_worker = False

    def __init__(self, model: Any) -> None:
        self.model_config = model
        self.attn_backend = SimpleNamespace(
            late_layer_num_tokens=lambda batch: None,
            get_cpu_graph_seq_len_fill_value=lambda: 1,
        )

    def attn_tp_sequence_sharded(self, tokens: int) -> bool:
        """Whether attention TP ranks hold slices of the tokens."""
        return False
