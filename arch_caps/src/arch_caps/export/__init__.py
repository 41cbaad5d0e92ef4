"""Renderings of the table: pure functions from rows, targets and claims to text, for `scripts/generate`."""

from arch_caps.export._claims import Claim, Claims, collect_claims, without_staleness
from arch_caps.export._cpp import cpp_header
from arch_caps.export._devices import device_list
from arch_caps.export._instances import instance_list
from arch_caps.export._json import table_json
from arch_caps.export._matrix import readme_block
from arch_caps.export._page import support_page
from arch_caps.export._settings_page import settings_page

__all__ = [
    "Claim",
    "Claims",
    "collect_claims",
    "cpp_header",
    "device_list",
    "instance_list",
    "readme_block",
    "settings_page",
    "support_page",
    "table_json",
    "without_staleness",
]
