"""A tiny kernel tree, and a clang that counts its calls and can be slow: what the builder's tests compile."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rocade_kernels import _cache
from rocade_kernels.build._sources import Tree
from rocade_kernels.instances import Instance

AMD = Instance("twice", "gfx942", "fp16", 64)
PTX = Instance("twice", "sm_90", "fp16", 64)
SOURCES = {
    "hip/test/twice.hip": """\
#include "index.hpp"
#include "inner/factor.hpp"
#include <rocade/other.hpp>
struct TwiceArgs { float* data; long long count; };
extern "C" __attribute__((global)) void rocade_twice(TwiceArgs args) {
  long long i = index();
  if (i < args.count) args.data[i] *= FACTOR + EXTRA;
}
""",
    "hip/index.hpp": """\
#if defined(__NVPTX__)
static __attribute__((device)) int index() { return __nvvm_read_ptx_sreg_tid_x(); }
#else
static __attribute__((device)) int index() { return __builtin_amdgcn_workitem_id_x(); }
#endif
""",
    "hip/inner/factor.hpp": '#include "../deep.hpp"\n#define FACTOR DEEP\n',
    "hip/deep.hpp": "#define DEEP 2\n",
    "include/rocade/other.hpp": "#define EXTRA 0\n",
    "hip/unused.hpp": "#define UNUSED 1\n",
}
# Gives every lane an array that is indexed by a run-time value, which registers cannot hold.
SCRATCH = """\
#include "index.hpp"
struct TwiceArgs { float* data; long long count; };
extern "C" __attribute__((global)) void rocade_twice(TwiceArgs args) {
  float held[99];
  for (int i = 0; i < 99; ++i) held[i] = args.data[i];
  for (int i = 0; i < args.count; ++i) held[(i * 7) % 99] += held[(i * 5) % 99];
  args.data[index()] = held[args.count % 99];
}
"""


def make_tree(root: Path) -> Tree:
    """The tree on disk."""
    for name, text in SOURCES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Tree(root)


@dataclass(frozen=True)
class Compiler:
    """Scripts named clang and ld.lld in a folder of their own; they hand on to the ones of ziglang."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Compiler:
        folder.mkdir(parents=True)
        (folder / "seconds").write_text("0")
        (folder / "calls").touch()
        for name in ("clang", "ld.lld"):
            command = _cache.ziglang(name)
            assert command is not None, "the tests need the package ziglang"
            script = folder / name
            script.write_text(
                "#!/bin/sh\n"
                f'case "$*" in *.hip*) echo $$ >> {folder}/calls; sleep $(cat {folder}/seconds);; esac\n'
                f'exec {" ".join(command)} "$@"\n'
            )
            script.chmod(stat.S_IRWXU)
        return cls(folder)

    def slow(self, seconds: float) -> None:
        """Make each compilation take so much longer."""
        (self.folder / "seconds").write_text(str(seconds))

    @property
    def compilations(self) -> int:
        """How many times a kernel was compiled."""
        return len((self.folder / "calls").read_text().split())


BUILD = """\
import logging, sys
from pathlib import Path
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from rocade_kernels.build import Instance, Store
from rocade_kernels.build._sources import Tree
code = Store(Tree(Path(sys.argv[1])), None).code(Instance(*sys.argv[2:5], int(sys.argv[5])))
print("sha256", code.sha256)
"""


def build_in_process(tree: Tree, instance: Instance) -> subprocess.Popen[str]:
    """A process, in a group of its own, that asks for an instance and prints log lines and the hash."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    arguments = [str(tree.root), *map(str, instance[:4])]
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )
