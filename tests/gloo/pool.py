"""Persistent gloo ranks: processes that are started once and run one function after another.

    results = shared_pool().run("tests.runtime.ranks:my_function", argument)

``my_function(rank, argument)`` runs on every rank with the default process group initialised; the
results come back in rank order. The first rank to raise has its traceback raised here. Nothing
hangs: whoever does not answer in time is killed, and the next run starts fresh ranks.
"""

from __future__ import annotations

import atexit
import importlib
import multiprocessing
import os
import pickle
import shutil
import tempfile
import time
import traceback
from datetime import timedelta
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

STARTUP_S = 120.0  # importing torch on a loaded machine
GRACE_S = 3.0  # for the others, once one rank has failed: they may wait for it in a collective


class RankError(RuntimeError):
    """A function raised on a rank; the message holds that rank's traceback."""


class RankTimeoutError(RankError):
    """Some ranks did not answer in time."""


class RankPool:
    """``size`` gloo ranks on this machine, each with one torch thread."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._processes: list[ForkServerProcess] = []
        self._pipes: list[Connection] = []
        self._folder: Path | None = None

    def run(self, function: str, *args: Any, timeout_s: float = 60.0) -> list[Any]:
        """Call ``function`` ("module:name") as ``function(rank, *args)`` on all ranks.

        Arguments and results are pickled. RankError with the traceback of the first rank that
        failed; RankTimeoutError names the ranks that had not answered after ``timeout_s``.
        """
        if not self._processes:
            self._start()
        message = pickle.dumps((function, args))
        try:
            for pipe in self._pipes:
                pipe.send_bytes(message)
            return self._collect(function, timeout_s)
        except BaseException:
            # Ranks may be left in the middle of a collective: they are of no more use.
            self.close()
            raise

    def close(self) -> None:
        """Kill the ranks, if they run. The next `run` starts new ones."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
        for pipe in self._pipes:
            pipe.close()
        self._processes, self._pipes = [], []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "torch.distributed.device_mesh"])
        for rank in range(self.size):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(rank, self.size, str(self._folder), theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)
        try:
            self._collect("start", STARTUP_S)
        except BaseException:
            self.close()
            raise

    def _collect(self, function: str, timeout_s: float) -> list[Any]:
        results: dict[int, Any] = {}
        failures: dict[int, str] = {}
        deadline = time.monotonic() + timeout_s
        while len(results) + len(failures) < self.size:
            silent = [
                rank for rank in range(self.size) if rank not in results and rank not in failures
            ]
            ready = wait([self._pipes[rank] for rank in silent], deadline - time.monotonic())
            if not ready:
                break
            for rank in silent:
                if self._pipes[rank] in ready:
                    self._receive(rank, results, failures)
            if failures:
                deadline = min(deadline, time.monotonic() + GRACE_S)
        if failures:
            rank, text = next(iter(failures.items()))
            raise RankError(f"{function} failed on rank {rank} of {self.size}:\n{text}")
        if len(results) < self.size:
            missing = [rank for rank in range(self.size) if rank not in results]
            raise RankTimeoutError(f"{function}: no answer from ranks {missing} in {timeout_s} s")
        return [results[rank] for rank in range(self.size)]

    def _receive(self, rank: int, results: dict[int, Any], failures: dict[int, str]) -> None:
        try:
            good, answer = pickle.loads(self._pipes[rank].recv_bytes())
        except (EOFError, OSError):
            self._processes[rank].join(1.0)
            code = self._processes[rank].exitcode
            good, answer = False, f"the process ended with exit code {code}"
        if good:
            results[rank] = answer
        else:
            failures[rank] = answer


def _serve(rank: int, size: int, folder: str, pipe: Connection) -> None:
    """Initialise a rank and run what arrives until the pipe closes."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=STARTUP_S),
    )
    pipe.send_bytes(pickle.dumps((True, None)))
    while True:
        try:
            function, args = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            module, _, name = function.partition(":")
            result = getattr(importlib.import_module(module), name)(rank, *args)
            answer = pickle.dumps((True, result))
        except Exception:
            answer = pickle.dumps((False, traceback.format_exc()))
        pipe.send_bytes(answer)


@cache
def shared_pool() -> RankPool:
    """The four ranks that all tests of a session share; they start with the first run."""
    pool = RankPool(4)
    atexit.register(pool.close)
    return pool
