"""What a probe shows a person: a line a stage, and what stands behind each verdict that is not plain."""

from collections.abc import Sequence

from dsa_cp.tools.review.probe.stage_probe import ProbeResult

HEADERS = ["subject", "cases", "fake tensors", "real tensors", "clean"]


def lines_of(results: Sequence[ProbeResult]) -> tuple[list[str], list[list[str]], list[str]]:
    """Return headers and rows of a table, and the remarks under it."""
    rows = []
    for subject in dict.fromkeys(result.subject for result in results):
        own = [result for result in results if result.subject == subject]
        fake = _counted([result.fake.verdict for result in own])
        real = _counted([result.real.verdict for result in own if result.real is not None])
        rows.append([subject, str(len(own)), fake, real or "not needed", "yes" if all(r.is_clean for r in own) else "NO"])
    return HEADERS, rows, [*_reads(results), *_stood_in(results), *_faults(results)]


def _counted(verdicts: list[str]) -> str:
    """Return verdicts with their number where there are several kinds."""
    said = ["reads data" if verdict == "data-dependent" else verdict for verdict in verdicts]
    kinds = list(dict.fromkeys(said))
    return kinds[0] if len(kinds) == 1 else ", ".join(f"{kind} {said.count(kind)}" for kind in kinds)


def _reads(results: Sequence[ProbeResult]) -> list[str]:
    """Return, for each stage that reads data, the operation and the line."""
    found = [result for result in results if result.fake.verdict == "data-dependent"]
    said = [f"{result.subject} reads data: {result.fake.what} at {result.fake.where}" for result in found]
    return list(dict.fromkeys(said))


def _stood_in(results: Sequence[ProbeResult]) -> list[str]:
    """Return which stages' contracts stood for them on the path."""
    names = list(dict.fromkeys(name for result in results for name in result.stood_in))
    return [f"on the path under fake tensors their contracts stood for {', '.join(names)}"] if names else []


def _faults(results: Sequence[ProbeResult]) -> list[str]:
    """Return what is wrong, case by case."""
    faults = []
    for result in results:
        outcomes = [result.fake, result.real]
        if not result.is_clean:
            said = [f"{o.what}{f' at {o.where}' if o.where else ''}" for o in outcomes if o and o.verdict != "fits"]
            faults.append(f"{result.subject} ({result.case}): {'; '.join(said)}")
    return faults
