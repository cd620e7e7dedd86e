"""The stage table of the README, made from the contracts and the files that carry their names."""

import re
from pathlib import Path

import dsa_contracts.stages as contracts
from dsa_contracts import CODES, StageContract, contract_of
from dsa_cp.tools.whole_files import write_text

ROOT = Path(__file__).resolve().parents[3]


def stage_contracts() -> tuple[StageContract, ...]:
    """Return the contracts of the stages that the package exports, in the order of their names."""
    return tuple(contract_of(getattr(contracts, name)) for name in contracts.__all__)


def codes_of(contract: StageContract) -> list[str]:
    """Return the codes in the Raises section of a contract's docstring, in order, ranges written out."""
    raises = (contract.stub.__doc__ or "").partition("Raises:")[2].partition("Source:")[0]
    found: list[str] = []
    for first, last in re.findall(r"(DSA\d{3})(?: to (DSA\d{3}))?", raises):
        found += [code for code in CODES if first <= code <= (last or first)]
    return found


def short_codes(codes: list[str]) -> str:
    """Return codes for a narrow column: without their letters, runs of three and more by their ends."""
    runs: list[list[str]] = []
    for code in codes:
        order = list(CODES)
        if runs and order.index(code) == order.index(runs[-1][-1]) + 1:
            runs[-1].append(code)
        else:
            runs.append([code])
    shown = [f"{run[0]}-{run[-1]}" if len(run) > 2 else " ".join(run) for run in runs]
    return " ".join(shown).replace("DSA", "")


def kernels_of(name: str, folder: Path) -> list[str]:
    """Return the modules of a folder that bind a kernel to the stage of that name."""
    bound = re.compile(rf"@stage\((?:contracts\.)?{name}\b")
    return [path.stem for path in sorted(folder.rglob("*.py")) if bound.search(path.read_text(encoding="utf-8"))]


def stage_table(root: Path = ROOT) -> str:
    """Return the table as Markdown: stage, contract, implementation, kernels, tests, codes."""
    lines = ["| stage | contract | implementation | kernels | tests | codes |", "| --- | --- | --- | --- | --- | --- |"]
    for contract in stage_contracts():
        name = contract.name
        links = (f"dsa_contracts/stages/{name}.py", f"src/dsa_cp/stages/{name}.py", f"tests/stages/test_{name}.py")
        stub, implementation, tests = (f"[{Path(link).name}]({link})" for link in links)
        kernels = ", ".join(kernels_of(name, root / "src" / "dsa_cp" / "kernels")) or "-"
        codes = short_codes(codes_of(contract))
        lines.append(f"| `{name}` | {stub} | {implementation} | {kernels} | {tests} | {codes} |")
    return "\n".join(lines) + "\n"


def write_into(readme: Path) -> None:
    """Replace the table in a README between its markers."""
    begin, end = "<!-- stage table: begin -->\n", "<!-- stage table: end -->"
    before, _, rest = readme.read_text(encoding="utf-8").partition(begin)
    write_text(readme, before + begin + stage_table() + end + rest.partition(end)[2])


if __name__ == "__main__":
    write_into(ROOT / "README.md")
