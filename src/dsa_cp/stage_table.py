"""The stage table of the README, made from the contracts and the files that carry their names."""

import re
from pathlib import Path

import dsa_contracts.stages as contracts
from dsa_contracts import StageContract, contract_of

ROOT = Path(__file__).resolve().parents[2]


def stage_contracts() -> tuple[StageContract, ...]:
    """Return the contracts of the stages that the package exports, in the order of their names."""
    return tuple(contract_of(getattr(contracts, name)) for name in contracts.__all__)


def codes_of(contract: StageContract) -> list[str]:
    """Return the codes in the Raises section of a contract's docstring, ranges written out by their ends."""
    text = contract.stub.__doc__ or ""
    raises = text.partition("Raises:")[2].partition("Source:")[0]
    return re.findall(r"DSA\d{3}", raises)


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
        codes = " ".join(code.removeprefix("DSA") for code in codes_of(contract))
        lines.append(f"| `{name}` | {stub} | {implementation} | {kernels} | {tests} | {codes} |")
    return "\n".join(lines) + "\n"
