"""Makes sure that a library of AITER is there, whole and right before a plan uses it, or has AITER build it.

A library is asked for by its variant and head size. The answer is kept for the life of the process, and what
a check found is kept on disk by the library's hash. After `rocade prebuild-aiter` a plan only looks it up.
"""

from rocade.backends.aiter.bootstrap._errors import BootstrapError
from rocade.backends.aiter.bootstrap._variants import defects, ensure, found, is_there, native_page, refusals
from rocade.backends.aiter.bootstrap._verdicts import Outcome, Verdict

__all__ = [
    "BootstrapError",
    "Outcome",
    "Verdict",
    "defects",
    "ensure",
    "found",
    "is_there",
    "native_page",
    "refusals",
]
