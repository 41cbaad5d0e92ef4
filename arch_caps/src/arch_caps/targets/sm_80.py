"""Ampere: A100."""

from arch_caps._target import Fact, Feature, Fp8, Has, Matrix, Sku, Target, Vendor
from arch_caps._types import DType, Level

TARGET = Target(
    name="sm_80",
    vendor=Vendor.NVIDIA,
    title="sm_80 (A100)",
    wave_size=Fact(32, "CUDA C++ programming guide, compute capability 8.0: warps of 32 threads"),
    lds_bytes=Fact(
        166912, "CUDA C++ programming guide, compute capability 8.0: 163 KiB of shared memory a block"
    ),
    lds_banks=Fact(32, "CUDA C++ programming guide, compute capability 8.0: 32 banks"),
    simds=Fact(4, "each SM has four processing blocks; architecture white paper"),
    vector_registers=Fact(
        512,
        "CUDA C++ programming guide, compute capability 8.0: 65536 registers an SM, 4 x 32 lanes",
    ),
    vector_granule=Fact(
        8, "CUDA occupancy calculator, compute capability 8.0: blocks of 256 registers a warp"
    ),
    waves_per_simd=Fact(16, "CUDA C++ programming guide, compute capability 8.0: 64 warps an SM, 4 x 16"),
    cache_line_bytes=Fact(128, "CUDA C++ programming guide, compute capability 8.0: 128-byte cache lines"),
    fp8=Fact(Fp8.NONE, "PTX ISA: e4m3 and e5m2 conversions need sm_89"),
    direct_to_lds_bits=Fact((32, 64, 128), "PTX ISA: cp.async takes 4, 8 and 16 bytes"),
    skus=(
        Sku(
            name="A100 40 GB",
            compute_units=108,
            clock_mhz=1410,
            bandwidth_gbs=1555,
            last_level_cache_mib=40,
            source="NVIDIA A100 data sheet and Ampere architecture white paper",
        ),
        Sku(
            name="A100 80 GB SXM",
            compute_units=108,
            clock_mhz=1410,
            bandwidth_gbs=2039,
            last_level_cache_mib=40,
            source="NVIDIA A100 data sheet and Ampere architecture white paper",
        ),
    ),
    matrix=(
        Matrix(
            name="mma.m16n8k16.f32.f16.f16.f32",
            m=16,
            n=8,
            k=16,
            in_dtype=DType.FP16,
            out_dtype=DType.FP32,
            clocks=8,
            source="derived from peak rate: 312 TFLOP/s of 108 SMs at 1.41 GHz",
        ),
        Matrix(
            name="mma.m16n8k16.f32.bf16.bf16.f32",
            m=16,
            n=8,
            k=16,
            in_dtype=DType.BF16,
            out_dtype=DType.FP32,
            clocks=8,
            source="derived from peak rate: 312 TFLOP/s of 108 SMs at 1.41 GHz",
        ),
        Matrix(
            name="mma.m16n8k8.f32.tf32.tf32.f32",
            m=16,
            n=8,
            k=8,
            in_dtype=DType.FP32,
            out_dtype=DType.FP32,
            clocks=8,
            source="derived from peak rate: 156 TFLOP/s of 108 SMs at 1.41 GHz",
        ),
    ),
    features=(
        Has(Feature.MATRIX_FP16, Level.NATIVE, "PTX ISA: mma.m16n8k16 with f16"),
        Has(Feature.MATRIX_BF16, Level.NATIVE, "PTX ISA: mma.m16n8k16 with bf16"),
        Has(Feature.MATRIX_FP32, Level.ABSENT, "PTX ISA: mma takes f32 as tf32 only"),
        Has(Feature.MATRIX_REDUCED_FP32, Level.NATIVE, "PTX ISA: mma.m16n8k8 with tf32"),
        Has(Feature.MATRIX_FP8, Level.ABSENT, "PTX ISA: mma with e4m3 needs sm_89"),
        Has(Feature.MATRIX_SCALED, Level.ABSENT, "PTX ISA: mma with block_scale needs sm_120a"),
        Has(
            Feature.FP8_CONVERT,
            Level.EMULATED,
            "PTX ISA: cvt to e4m3x2 needs sm_89; done with integer instructions",
        ),
        Has(Feature.BF16_CONVERT, Level.NATIVE, "PTX ISA: cvt.rn.bf16x2.f32"),
        Has(Feature.PACKED_FP32_FMA, Level.ABSENT, "PTX ISA: fma.rn.f32x2 needs sm_100"),
        Has(Feature.DIRECT_TO_LDS_32, Level.NATIVE, "PTX ISA: cp.async of 4 bytes"),
        Has(Feature.DIRECT_TO_LDS_128, Level.NATIVE, "PTX ISA: cp.async of 16 bytes"),
        Has(Feature.LDS_TRANSPOSE_READ, Level.NATIVE, "PTX ISA: ldmatrix.trans.b16"),
        Has(Feature.LANE_SWAP, Level.EMULATED, "PTX ISA: shfl.sync does it"),
        Has(Feature.EARLY_START, Level.ABSENT, "PTX ISA: griddepcontrol needs sm_90"),
    ),
)
