"""What a runtime is, whoever made the device: load, launch, facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rocade_kernels.runtime._arguments import Arguments

Grid = tuple[int, int, int]


class Named(Protocol):
    """A kernel of ours or of another project. It is hashable: what is loaded is found by it."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def entry(self) -> str:
        """The kernel's symbol."""


class Image(Protocol):
    """What a runtime needs of compiled code: which kernel it is, and an ELF code object or PTX text."""

    @property
    def instance(self) -> Named:
        """What was compiled."""

    @property
    def image(self) -> bytes:
        """The code."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What the driver says of a device, or the emulator of what it stands for."""

    name: str
    compute_units: int
    wave_size: int  # lanes that run in lock step
    lds_bytes: int  # local (shared) memory that one workgroup may use
    driver: str  # version, in the driver's own words
    chip: int | None = None  # PCI device id of AMD's, which tells products of one target apart; None: unknown


class Function(Protocol):
    """A loaded kernel."""

    name: str

    def launch(
        self,
        grid: Grid,
        block: int,
        lds: int,
        stream: int,
        args: Arguments,
        reads: Sequence[object] = (),
        writes: Sequence[object] = (),
        early: bool = False,
    ) -> None:
        """Queue one run.

        Args:
            grid: workgroups in x, y, z, each at least 1.
            block: work items of a workgroup.
            lds: bytes of local memory beyond what the kernel declares.
            stream: the driver's handle; 0 is its default stream.
            args: the argument block. It may be filled again as soon as this returns.
            reads: tensors that the kernel only reads. A GPU reaches all of its memory; the emulator, only
                what stands here.
            writes: tensors that it writes.
            early: it may start before the kernel in front of it on the stream has ended. The kernel itself
                waits where it needs what that one wrote. Ignored where the driver knows no such launch.

        Raises:
            DeviceError: the driver refused. Faults of the kernel itself show later, as for every GPU call.
        """


class Runtime(Protocol):
    """One device. It must be the calling thread's current one when a function of it is launched."""

    target: str

    def load(self, code: Image) -> Function:
        """Make a kernel ready to launch.

        Raises:
            DeviceError: the driver refused the code.
        """

    def facts(self) -> DeviceFacts:
        """What the device is."""
