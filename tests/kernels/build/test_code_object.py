"""Torn and foreign images are refused with a reason, wherever they are torn."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from tests.kernels.build.trees import AMD, PTX, make_tree

from rocade_kernels.build import Code, ImageError, Instance, compile_instance, toolchain_for
from rocade_kernels.build._code_object import unpack


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[Instance, bytes]:
    folder = tmp_path_factory.mktemp("images")
    tree = make_tree(folder / "tree")
    found = {}
    for instance in (AMD, PTX):
        compile_instance(instance, toolchain_for(instance), folder / "image", tree)
        found[instance] = (folder / "image").read_bytes()
    return found


@pytest.mark.parametrize("instance", [AMD, PTX], ids=lambda i: i.target)
def test_every_truncation_is_refused(images: dict[Instance, bytes], instance: Instance) -> None:
    image = images[instance]
    end = len(image.rstrip()) if instance.is_ptx else len(image)
    Code.of(instance, image)
    for size in range(0, end, 7):
        with pytest.raises(ImageError):
            Code.of(instance, image[:size])


def test_no_change_of_one_byte_raises_anything_else(images: dict[Instance, bytes]) -> None:
    """The hash finds every change; the readers, which also see files that are not ours, must not crash."""
    for instance, image in images.items():
        for at in range(0, len(image), 5):
            torn = bytearray(image)
            torn[at] ^= 0xFF
            with contextlib.suppress(ImageError):
                Code.of(instance, bytes(torn))


@pytest.mark.parametrize("instance", [AMD, PTX], ids=lambda i: i.target)
def test_foreign_images_are_refused(images: dict[Instance, bytes], instance: Instance) -> None:
    image = images[instance]
    other = {AMD: "gfx950", PTX: "sm_80"}[instance]
    with pytest.raises(ImageError, match=f"it is for .*{instance.target}, not for {other}"):
        Code.of(instance._replace(target=other), image)
    with pytest.raises(ImageError, match="rocade_thrice"):
        Code.of(instance._replace(kernel="thrice"), image)
    with pytest.raises(ImageError):
        Code.of(instance, images[PTX if instance is AMD else AMD])
    with pytest.raises(ImageError, match="no linked AMD code object"):
        Code.of(AMD, Path("/bin/sh").read_bytes())


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x07", 7),
        (b"\xff", -1),
        (b"\xc0", None),
        (b"\xc3", True),
        (b"\xcd\x01\x00", 256),
        (b"\xd1\xff\xfe", -2),
        (b"\xcf" + b"\x00" * 7 + b"\x05", 5),
        (b"\xa2hi", "hi"),
        (b"\xd9\x02hi", "hi"),
        (b"\xc4\x01\x00", b"\x00"),
        (b"\x92\x01\xa1a", [1, "a"]),
        (b"\xdc\x00\x01\x02", [2]),
        (b"\x81\xa1k\x90", {"k": []}),
        (b"\xde\x00\x01\xa1k\x01", {"k": 1}),
    ],
)
def test_messagepack_values(data: bytes, value: object) -> None:
    assert unpack(data) == value
    for size in range(len(data)):
        with pytest.raises(ImageError, match="torn"):
            unpack(data[:size])


@pytest.mark.parametrize("data", [b"\xc1", b"\x81\x90\x01", b"\xa1\xff", b"\x91" * 100_000])
def test_values_that_metadata_never_has(data: bytes) -> None:
    with pytest.raises(ImageError, match="torn"):
        unpack(data)
