"""Lines of a benchmark report: figures, and floors that say pass or miss."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Floor:
    """A promise about one figure of one case. `at_least` tells the direction."""

    case: str
    what: str
    value: float
    limit: float
    at_least: bool = True

    @property
    def met(self) -> bool:
        """Whether the promise held in this run."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        """One line: verdict, case, figure, limit."""
        sign = ">=" if self.at_least else "<="
        verdict = "met   " if self.met else "MISSED"
        return f"{verdict} {self.case}: {self.what} {self.value:.3g} (floor {sign} {self.limit:g})"


@dataclass(slots=True)
class Report:
    """Collects a run's figures and floors, printing each as it comes."""

    figures: list[dict[str, object]] = field(default_factory=list)
    floors: list[Floor] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def figure(self, case: str, **values: object) -> None:
        """Record and print one row of figures."""
        self.figures.append({"case": case, **values})
        cells = (f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())
        print(f"{case}: " + ", ".join(cells), flush=True)

    def floor(self, case: str, what: str, value: float, limit: float, *, at_least: bool = True) -> None:
        """Record and print one floor."""
        found = Floor(case, what, value, limit, at_least)
        self.floors.append(found)
        print(f"  {found}", flush=True)

    def wrong(self, case: str, error: float, allowed: float) -> None:
        """Check a result's error against the rival's result; a wrong result voids the run."""
        if not error <= allowed:  # also true for NaN
            self.errors.append(f"{case}: results differ by {error:.3g}, allowed {allowed:.3g}")
            print(f"  WRONG {self.errors[-1]}", flush=True)

    def close(self, path: Path | None, head: str) -> int:
        """Print the summary, write JSON if asked, and return the exit code: 1 when wrong or missed."""
        missed = [f for f in self.floors if not f.met]
        met = len(self.floors) - len(missed)
        print(f"\n{met} of {len(self.floors)} floors met, {len(self.errors)} wrong results")
        for line in [*map(str, missed), *self.errors]:
            print(f"  {line}")
        if path is not None:
            floors = [{**asdict(f), "met": f.met} for f in self.floors]
            data = {"machine": head, "figures": self.figures, "floors": floors, "errors": self.errors}
            path.write_text(json.dumps(data, indent=1) + "\n")
        return 1 if missed or self.errors else 0
