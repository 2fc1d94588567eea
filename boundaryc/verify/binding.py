"""What a simulated model binds for the stages of a layer."""

from __future__ import annotations

import torch
from torch import Tensor

from boundaryc.language.model import NormSpec
from boundaryc.operations import Operation, final_read, transform_operation
from boundaryc.plan.result import StackPlan
from boundaryc.verify.fixture import ScaleParameter, bound_to
from boundaryc.verify.scene import Subject


def qkv_latent(x: Tensor, batch: object) -> Tensor:
    """What stands for a model's latent of the rows x [rows, width]: [rows, 5]."""
    return torch.sin(x[:, :5] + x[:, -5:])


def bind_arguments(plan: StackPlan, stage: str, params: dict[str, Tensor]) -> dict[str, object]:
    """What ``layer.bind`` takes for one stage.

    The norm of a built-in read goes by the stage's own name, a parameter of a declared operation by
    the stage's name and its own.
    """
    declared = plan.stack.stage(stage)
    read, update = plan.operations[declared.read], plan.operations[declared.update]
    named = {_argument(stage, name, read): (name, read) for name in read.params}
    named |= {f"{stage}_{name}": (name, update) for name in update.params}
    if declared.transform is not None:
        transform = plan.operations[transform_operation(declared.transform.name)]
        named |= {f"{stage}_{name}": (name, transform) for name in transform.params}
    if plan.stack.branch is not None and stage == plan.stack.branch.stages[0]:
        named.pop(stage, None)  # its input has been read
    norm = plan.stack.norm_of(stage)
    bound: dict[str, object] = {
        argument: bound_to(params, name, biased=_biased(operation, norm))
        for argument, (name, operation) in named.items()
    }
    scales = declared.quantize.params if declared.quantize else ()
    if declared.latent_input:
        bound[f"{stage}_qkv_latent"] = qkv_latent
    return bound | {f"{stage}_{name}": ScaleParameter(params[name]) for name in scales}


def _argument(stage: str, param: str, read: Operation) -> str:
    return stage if read.param_type(param, "Norm") == "Norm" else f"{stage}_{param}"


def _biased(operation: Operation, norm: NormSpec) -> bool:
    """Whether what is bound has a bias: as ``norm`` says, and for whatever no norm stands for."""
    return norm.bias or (operation.outside and not operation.facts.plain_norm)


def bound_last(subject: Subject) -> list[object]:
    """What ``stack.norm`` takes for the final read."""
    fixture = subject.fixture
    params = {"norm": fixture.final, **fixture.last}
    named = last_params(subject.plan)
    read = subject.plan.operations[final_read(subject.plan.stack)]
    if not named and read.call is None:
        named = ("norm",)  # it is given one that it does not use
    biased = _biased(read, subject.plan.stack.norm)
    return [bound_to(params, name, biased=biased) for name in named]


def last_params(plan: StackPlan) -> tuple[str, ...]:
    """The names of what the final read takes, in call order."""
    return plan.operations[final_read(plan.stack)].params


def of_every_batch(plan: StackPlan) -> list[str]:
    """The operations of a stack that take something of every batch."""
    return [name for name, operation in plan.operations.items() if operation.facts.per_call]
