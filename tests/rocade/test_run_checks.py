"""Which tensors count as sharing memory: elements decide, not address ranges."""

from __future__ import annotations

import itertools

import torch

from rocade._run_checks import overlap


def shares_an_element(a: torch.Tensor, b: torch.Tensor) -> bool:
    """By definition: the sets of addresses meet."""

    def addresses(t: torch.Tensor) -> set[int]:
        steps = [range(0, n * s, s) if s else [0] for n, s in zip(t.shape, t.stride(), strict=True)]
        starts = {t.data_ptr() + t.element_size() * sum(at) for at in itertools.product(*steps)}
        return {start + byte for start in starts for byte in range(t.element_size())}

    return bool(addresses(a) & addresses(b))


def test_slices_of_one_buffer() -> None:
    base = torch.zeros(4, 6, 5)
    views = [
        base,
        base[:2],
        base[2:],
        base[:, 0],
        base[:, 1],
        base[:, :2],
        base[:, 1:3],
        base[:, 3:],
        base[1:, :3],
        base[:-1, 3:],
        base[..., 0],
        base[1, :, :2],
        base[:0],
        base[:, 5],
        base[1:2, 5],
        base[::2, 1],
        base[1::2, 1],
    ]
    for a, b in itertools.product(views, views):
        # What is told apart is told apart rightly; what is not counts as shared.
        assert overlap(a, b) or not shares_an_element(a, b)
    apart = [(3, 4), (5, 7), (3, 6), (3, 7), (6, 7), (4, 13), (8, 9), (15, 16), (1, 2), (4, 14)]
    assert not any(overlap(views[i], views[j]) or overlap(views[j], views[i]) for i, j in apart)
    assert overlap(views[5], views[6])
    assert overlap(views[3], views[3])


def test_a_slice_of_the_queries_buffer_is_told_from_the_queries() -> None:
    fused = torch.zeros(7, 12, 16)
    assert not overlap(fused[:, 4:8], fused[:, :4])
    assert overlap(fused[:, 3:7], fused[:, :4])
    assert not overlap(fused[:, 4:8], fused[1:, :4])
