"""Refining the cuts of a topology into atoms."""

from __future__ import annotations

import pytest

from boundaryc.topology import Mesh, Sizes, TopologyError, build_mesh


def _mesh(tp: int, dp: int = 1, cp: int = 1, dense: int | None = None, moe_dp: int = 1) -> Mesh:
    return build_mesh(Sizes(tp, dp, cp, tp // dp // cp, dense or tp, moe_dp))


@pytest.mark.parametrize(
    ("mesh", "atoms"),
    [
        (_mesh(1), []),
        (_mesh(8), [("attn_tp", 8)]),
        (_mesh(8, dp=8), [("attn_dp", 8)]),
        (_mesh(8, dp=2, cp=2), [("attn_dp", 2), ("attn_cp", 2), ("attn_tp", 2)]),
        (_mesh(16, dp=4, moe_dp=2), [("attn_dp_0", 2), ("attn_dp_1", 2), ("attn_tp", 4)]),
        (_mesh(16, dp=2, moe_dp=4), [("attn_dp", 2), ("attn_tp_0", 2), ("attn_tp_1", 4)]),
        (_mesh(12, dp=3), [("attn_dp", 3), ("attn_tp", 4)]),
    ],
)
def test_atoms_are_outermost_first(mesh: Mesh, atoms: list[tuple[str, int]]) -> None:
    assert [(atom.name, atom.size) for atom in mesh.atoms] == atoms


def test_axes_are_masks_over_atoms() -> None:
    mesh = _mesh(16, dp=4, moe_dp=2, dense=4)

    assert mesh.mask("attn_dp") == 0b011
    assert mesh.mask("attn_tp") == 0b100
    assert mesh.mask("dense") == 0b100
    assert mesh.mask("moe_dp") == 0b001
    assert mesh.mask("moe_output") == 0b110
    assert mesh.size(mesh.mask("moe_output")) == 8


def test_labels_prefer_the_widest_name() -> None:
    mesh = _mesh(16, dp=4, moe_dp=2)

    assert mesh.label(mesh.every) == "tp"
    assert mesh.label(mesh.mask("attn_dp")) == "attn_dp"
    assert mesh.label(0b101) == "attn_dp_0_attn_tp"
    assert mesh.words(0) == "all"


def test_cuts_that_do_not_nest_are_refused() -> None:
    with pytest.raises(TopologyError, match=r"moe_ep x moe_tp \(groups of 4\).*groups of 6"):
        _mesh(12, dp=2, moe_dp=3)


def test_labels_name_different_sets_differently() -> None:
    for mesh in (_mesh(16, dp=4, moe_dp=2), _mesh(8, dp=2, cp=2), _mesh(16, dp=2, moe_dp=4)):
        labels = [mesh.label(mask) for mask in range(1, mesh.every + 1)]
        assert len(set(labels)) == len(labels)
