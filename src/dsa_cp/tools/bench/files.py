"""Results as files: the records as JSON lines, and the plots."""

import json
from pathlib import Path

from dsa_cp.tools.whole_files import write_text

Records = list[dict[str, object]]


def write_results(records: Records, folder: Path) -> list[Path]:
    """Write `results.jsonl`, and a plot as PNG and SVG for each part that has one; returns the paths."""
    path = folder / "results.jsonl"
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))
    try:
        from dsa_cp.tools.bench.plots import write_plots
    except ModuleNotFoundError:
        return [path]
    return [path, *write_plots(records, folder)]


def read_results(path: Path) -> Records:
    """Return the records of a `results.jsonl`."""
    return [json.loads(line) for line in path.read_text().splitlines()]
