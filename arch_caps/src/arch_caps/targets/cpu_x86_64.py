"""x86-64 processors. What the machine has beyond the baseline is asked at run time."""

from arch_caps._target import Fact, Feature, Fp8, Has, Target, Vendor
from arch_caps._types import Level

TARGET = Target(
    name="cpu-x86_64",
    vendor=Vendor.CPU,
    title="x86-64 CPU",
    wave_size=Fact(1, "a thread runs on its own"),
    lds_bytes=Fact(0, "a CPU has no such thing"),
    lds_banks=Fact(0, "a CPU has no such thing"),
    simds=Fact(None, "differs by machine"),
    vector_registers=Fact(None, "differs by machine"),
    vector_granule=Fact(None, "a CPU has no such thing"),
    waves_per_simd=Fact(None, "differs by machine"),
    cache_line_bytes=Fact(64, "Intel SDM and AMD64 manual: 64-byte cache lines"),
    fp8=Fact(Fp8.NONE, "no conversion instruction is assumed"),
    direct_to_lds_bits=Fact((), "a CPU has no such thing"),
    skus=(),
    matrix=(),
    features=(
        Has(Feature.MATRIX_FP16, Level.ABSENT, "no matrix unit is assumed"),
        Has(Feature.MATRIX_BF16, Level.ABSENT, "no matrix unit is assumed"),
        Has(Feature.MATRIX_FP32, Level.ABSENT, "no matrix unit is assumed"),
        Has(Feature.MATRIX_REDUCED_FP32, Level.ABSENT, "no matrix unit is assumed"),
        Has(Feature.MATRIX_FP8, Level.ABSENT, "no matrix unit is assumed"),
        Has(Feature.MATRIX_SCALED, Level.ABSENT, "no matrix unit is assumed"),
        Has(Feature.FP8_CONVERT, Level.EMULATED, "table look-up or integer arithmetic in software"),
        Has(Feature.BF16_CONVERT, Level.EMULATED, "integer arithmetic in software"),
        Has(Feature.PACKED_FP32_FMA, Level.UNKNOWN, "differs by machine; asked at run time"),
        Has(Feature.DIRECT_TO_LDS_32, Level.ABSENT, "a CPU has no such thing"),
        Has(Feature.DIRECT_TO_LDS_128, Level.ABSENT, "a CPU has no such thing"),
        Has(Feature.LDS_TRANSPOSE_READ, Level.ABSENT, "a CPU has no such thing"),
        Has(Feature.LANE_SWAP, Level.ABSENT, "a CPU has no such thing"),
        Has(Feature.EARLY_START, Level.ABSENT, "a CPU has no such thing"),
    ),
)
