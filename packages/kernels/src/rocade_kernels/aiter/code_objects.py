"""Finds AITER's prebuilt kernels of forward attention, and reads the ones that a caller knows by hash."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from rocade_kernels import _settings
from rocade_kernels.aiter.errors import LibraryError, LibraryMissingError
from rocade_kernels.aiter.search import check_trusted, package_folder
from rocade_kernels.aiter.versions import DISTRIBUTION, distribution_version

FAMILY = "fmha_v3_fwd"
_ADVICE = (
    f"`pip install --no-deps {DISTRIBUTION}` brings them, and {_settings.AITER_ASM_DIR.name} names another "
    "folder. Nothing of AITER is imported or built"
)


def folders(target: str) -> tuple[Path, ...]:
    """Where a target's code objects may lie, in order; a folder may not exist."""
    chosen = _settings.AITER_ASM_DIR.read()
    if chosen:
        # The folder above those of the targets; AITER 0.1.7 sets the variable to a target's own.
        return (Path(chosen, target, FAMILY), Path(chosen, FAMILY))
    package = package_folder()
    if package is None:
        return ()
    # A wheel has a package of sources beside it; a checkout has the package itself inside of the sources.
    return tuple(package.parent / place / target / FAMILY for place in ("aiter_meta/hsa", "hsa"))


def read(target: str, product: str, name: str, sha256: str) -> bytes:
    """A code object, sure to be the one of this hash.

    Args:
        target: whose folder to look in.
        product: folder in that, or empty.
        name: of the file.
        sha256: of its content, in hex.

    Raises:
        LibraryMissingError: no folder has it.
        LibraryError: it has other content, or others could have written it.
    """
    searched = folders(target)
    for folder in searched:
        path = folder / product / name
        if path.is_file():
            check_trusted(path, _settings.AITER_ASM_DIR)
            status = path.stat()
            return _known(path, status.st_mtime_ns, status.st_size, sha256)
    places = ", ".join(map(str, searched)) or f"{DISTRIBUTION} is not installed"
    raise LibraryMissingError(f"AITER's code object {name} for {target} was not found ({places}); {_ADVICE}")


@functools.lru_cache(maxsize=64)
def _known(path: Path, changed: int, size: int, sha256: str) -> bytes:
    """The content, read again when the file has `changed`."""
    del changed, size
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        version = distribution_version() or "of an unknown version"
        raise LibraryError(
            f"{path} (AITER {version}, SHA-256 {found[:16]}...) is not the code object that was executed to "
            f"learn how it is called ({sha256[:16]}...): what this one does is unknown"
        )
    return content
