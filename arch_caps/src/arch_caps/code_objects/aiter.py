"""AITER's code objects of forward attention (`hsa/<target>/fmha_v3_fwd`) that the emulator has executed.

Only those for requests of several lengths are used ("group"): one request is a batch of one.

`one_tile`: AITER launches half as many workgroups as there are tiles, and each computes a tile from the start
and one from the end. On gfx950 the second tile's queries are loaded into local memory that slower waves may
still read. A request of one tile never gets there, and its launch is the same whether workgroups take one
tile or two, which differs between versions of AITER. So requests are cut into tiles, each a request.

`min_keys`: with fewer keys, a result of a matrix instruction is masked 8 wait states after it, and the rules
ask for 11. Such requests go to the causal kernel, row by row: a single row sees all keys either way.

Not listed, so refused: the kernels for 192-dim queries and keys of these versions (gfx950). They read values
from local memory before those arrived: `s_waitcnt lgkmcnt(8)` stands where 8 reads have yet to return. AITER
fixed results that changed from run to run in later ones.
"""

from arch_caps._code_object import CodeObject, Product

PRODUCTS = (
    # MI308; all other gfx942 chips take the folder of MI300.
    Product(target="gfx942", name="MI308", chips=(0x74A2, 0x74A8, 0x74B6, 0x74BC)),
)

OBJECTS = (
    CodeObject(
        target="gfx942",
        product="MI300",
        file="fwd_hd128_bf16_rtne_group.co",
        sha256="554a4b73bea4a5bb308bafab7b8d64020001f2582aee4d7c660c7ca36cf4da20",
        symbol="_ZN5aiter30fmha_fwd_hd128_bf16_rtne_groupE",
        head_dim_qk=128,
        head_dim_vo=128,
        causal=False,
        tile_rows=256,
        threads=512,
        one_tile=False,
        min_keys=32,
        seen_in=("0.1.7.post2.dev18",),
    ),
    CodeObject(
        target="gfx942",
        product="MI300",
        file="fwd_hd128_bf16_causal_rtne_group.co",
        sha256="ee03950e3fc9b8a4efa5101ca32c0379bc65ed52e33660ca809ed0eaba76c4de",
        symbol="_ZN5aiter37fmha_fwd_hd128_bf16_causal_rtne_groupE",
        head_dim_qk=128,
        head_dim_vo=128,
        causal=True,
        tile_rows=256,
        threads=512,
        one_tile=True,
        min_keys=1,
        seen_in=("0.1.7.post2.dev18",),
    ),
    CodeObject(
        target="gfx942",
        product="MI308",
        file="fwd_hd128_bf16_rtne_group.co",
        sha256="4bf56a139151ff6be9b449679d27590148b5966443cf3ccf54ae6439e14e66e5",
        symbol="_ZN5aiter30fmha_fwd_hd128_bf16_rtne_groupE",
        head_dim_qk=128,
        head_dim_vo=128,
        causal=False,
        tile_rows=256,
        threads=512,
        one_tile=False,
        min_keys=32,
        seen_in=("0.1.7.post2.dev18",),
    ),
    CodeObject(
        target="gfx942",
        product="MI308",
        file="fwd_hd128_bf16_causal_rtne_group.co",
        sha256="7454293e6c3105ea59399f4abe7dfe547decd54f84c71726242da1ae935c78e6",
        symbol="_ZN5aiter37fmha_fwd_hd128_bf16_causal_rtne_groupE",
        head_dim_qk=128,
        head_dim_vo=128,
        causal=True,
        tile_rows=256,
        threads=512,
        one_tile=True,
        min_keys=1,
        seen_in=("0.1.7.post2.dev18",),
    ),
    CodeObject(
        target="gfx950",
        product="",
        file="fwd_hd128_bf16_group.co",
        sha256="e86fba85d4f6ec1fa6f113b061c60583cf92da7c022f8551275dc87a2320eff3",
        symbol="_ZN5aiter25fmha_fwd_hd128_bf16_groupE",
        head_dim_qk=128,
        head_dim_vo=128,
        causal=False,
        tile_rows=256,
        threads=512,
        one_tile=False,
        min_keys=1,
        seen_in=("0.1.7.post2.dev18",),
    ),
    CodeObject(
        target="gfx950",
        product="",
        file="fwd_hd128_bf16_causal_group.co",
        sha256="acfef5329dbfde5614c844b305b26ac5af7e8cbee39729bfaee95574078beea4",
        symbol="_ZN5aiter32fmha_fwd_hd128_bf16_causal_groupE",
        head_dim_qk=128,
        head_dim_vo=128,
        causal=True,
        tile_rows=256,
        threads=512,
        one_tile=True,
        min_keys=1,
        seen_in=("0.1.7.post2.dev18",),
    ),
)
