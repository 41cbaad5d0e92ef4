"""`Code`, an instance compiled, and the file that holds one: a line with its hash, then the image."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass

from rocade_kernels.build._code_object import ImageError
from rocade_kernels.build._resources import Resources, check
from rocade_kernels.instances import Instance

SUFFIX = ".code"
_MAGIC = b"rocade-code-1"


@dataclass(frozen=True)
class Code:
    """Machine code of one instance, checked: it is whole, and of that kernel and target."""

    instance: Instance
    image: bytes  # an AMD code object, or PTX text
    resources: Resources
    sha256: str  # of the image, in hex

    @classmethod
    def of(cls, instance: Instance, image: bytes) -> Code:
        """Check an image; `ImageError` when it is not this instance's or breaks a rule."""
        return cls(instance, image, check(image, instance), hashlib.sha256(image).hexdigest())


def pack(code: Code) -> bytes:
    """The content of a file: a first line with the image's SHA-256, then the image, compressed."""
    return _MAGIC + b" " + code.sha256.encode() + b"\n" + zlib.compress(code.image, 9)


def unpack(content: bytes, instance: Instance, expected: str | None = None) -> Code:
    """The code in a file's content.

    Args:
        content: what `pack` made.
        instance: what it must be.
        expected: SHA-256 of the image as a manifest says; None takes the file's own.

    Raises:
        ImageError: it is torn or altered, or of another instance.
    """
    head, _, body = content.partition(b"\n")
    magic, _, written = head.partition(b" ")
    if magic != _MAGIC:
        raise ImageError("it is no file of compiled code")
    try:
        image = zlib.decompress(body)
    except zlib.error as error:
        raise ImageError(f"it is torn: {error}") from error
    sha256 = hashlib.sha256(image).hexdigest()
    if sha256.encode() != written or expected not in (None, sha256):
        raise ImageError("it does not have the SHA-256 that it was written with")
    return Code.of(instance, image)
