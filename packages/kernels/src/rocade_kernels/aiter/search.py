"""Finds AITER's libraries: which folders are searched, and whether what lies there may be loaded."""

from __future__ import annotations

import grp
import importlib.util
import os
import pwd
import stat
from collections.abc import Sequence
from pathlib import Path

from rocade_kernels import _settings
from rocade_kernels.aiter import recipes
from rocade_kernels.aiter.errors import LibraryError, LibraryMissingError
from rocade_kernels.aiter.names import VariantKey, file_name


def package_folder() -> Path | None:
    """The installed package `aiter`, which is not imported; None where there is none."""
    spec = importlib.util.find_spec("aiter")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def folders(extra: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Where libraries are looked for, in order; a folder may not exist.

    Args:
        extra: more folders, searched last.
    """
    chosen = _settings.AITER_JIT_DIR.read()
    package = package_folder()
    # AITER builds into its package where it can write there, else into the user's home.
    own = [*([package / "jit"] if package else []), Path("~/.aiter/jit")]
    first = [Path(chosen)] if chosen else own
    more = [Path(name) for name in _settings.AITER_VARIANT_DIR.read().split(":") if name.strip()]
    found: dict[Path, None] = {}
    for place in (*first, *more, *extra):
        try:
            found[place.expanduser().absolute()] = None
        except RuntimeError:  # `~` of a user id that the system does not know
            continue
    return tuple(found)


def find(key: VariantKey, version: str, extra: Sequence[Path] = ()) -> Path:
    """The library of a variant.

    Args:
        key: what the library must hold.
        version: of the AITER that built it.
        extra: more folders, searched last.

    Raises:
        LibraryMissingError: no folder has it. The text tells how to have AITER build it.
        LibraryError: it is there, but others could have written it.
        UnknownVersionError: `version` is not known.
    """
    name = file_name(key, version)
    searched = folders(extra)
    for folder in searched:
        path = folder / name
        if path.is_file():
            check_trusted(path)
            return path
    raise LibraryMissingError(recipes.missing(key, version, searched))


def check_trusted(path: Path, setting: _settings.Setting = _settings.AITER_VARIANT_DIR) -> None:
    """Refuse code that another user could have written or could replace.

    Args:
        path: of the file.
        setting: by which a folder for such files is named.

    Raises:
        LibraryError: it, its folder, or a folder on the way there is open to others.
    """
    real = path.resolve()
    holders = {path.absolute().parent, real.parent}
    for place in dict.fromkeys((real, *real.parents, *path.absolute().parents)):
        why = _opened(place, shared_is_fine=place not in holders)
        if why:
            raise LibraryError(
                f"{path} is not loaded: {place} {why}, so its code cannot be trusted; take those rights "
                f"away, or copy it to a folder of your own and name that in {setting.name}"
            )


def _opened(place: Path, *, shared_is_fine: bool) -> str:
    """How others can change a file, or what is in a folder; empty when they cannot.

    Args:
        place: file or folder.
        shared_is_fine: whether a folder may be one like `/tmp`, where each user removes only what is theirs.
    """
    status = place.stat()
    if status.st_uid not in (0, os.getuid()):
        return f"belongs to user {status.st_uid}"
    if shared_is_fine and stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return ""
    if status.st_mode & stat.S_IWOTH:
        return "is writable by others"
    if status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid):
        return f"is writable by group {status.st_gid}"
    return ""


def _is_private(group: int) -> bool:
    """Whether a group is one user's own: root's or ours, of the same name, without other members."""
    try:
        entry, names = grp.getgrgid(group), {"root", pwd.getpwuid(os.getuid()).pw_name}
    except KeyError:
        return False
    return entry.gr_name in names and names.issuperset(entry.gr_mem)
