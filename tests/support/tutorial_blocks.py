"""The programs of the tutorial, and what each of them says when they are run one after another.

Run as a program, it prints what the programs in a file said, as JSON. A process of its own keeps contracts, codes and dims of
the tutorial out of other tests.
"""

import io
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

from dsa_contracts.core.errors import ContractError

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REFUSED = "  # refused\n"


class Block(NamedTuple):
    """A fenced block of a document: its language and its text."""

    language: str
    text: str


class Program(NamedTuple):
    """A python block, and the text block that follows it before the next one; None where none does."""

    source: str
    output: str | None


def blocks_of(document: str) -> list[Block]:
    """Return the fenced blocks of a document, in order."""
    return [Block(*found) for found in FENCE.findall(document)]


def programs_of(document: str) -> list[Program]:
    """Return the python blocks of a document, each with the output that the document shows."""
    programs: list[Program] = []
    for block in blocks_of(document):
        if block.language == "python":
            programs.append(Program(block.text, None))
        elif block.language == "text":
            programs[-1] = Program(programs[-1].source, block.text)
    return programs


def said_by(programs: list[Program], path: Path) -> list[str]:
    """Run programs in one namespace, as the parts of the file that they make, and return what each of them printed.

    A program with a line that ends in `# refused` must raise a ContractError there, whose text counts as printed.
    """
    path.write_text("".join(program.source for program in programs), encoding="utf-8")
    names: dict[str, object] = {"__name__": path.stem, "__file__": str(path)}
    outputs, line = [], 0
    for program in programs:
        printed = io.StringIO()
        code = compile("\n" * line + program.source, str(path), "exec")
        with redirect_stdout(printed):
            try:
                exec(code, names)
            except ContractError as error:
                at = _line_of(error, path)
                if not path.read_text(encoding="utf-8").splitlines(keepends=True)[at - 1].endswith(REFUSED):
                    raise
                printed.write(f"{error}\n")
            else:
                if REFUSED in program.source:
                    printed.write("nothing was refused\n")
        outputs.append(printed.getvalue())
        line += program.source.count("\n")
    return outputs


def _line_of(error: BaseException, path: Path) -> int:
    """Return the line of the outermost frame of a file that an error passed through."""
    trace, line = error.__traceback__, 0
    while trace is not None and not line:
        line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == str(path) else 0
        trace = trace.tb_next
    return line


if __name__ == "__main__":
    document, program_file = (Path(argument) for argument in sys.argv[1:])
    json.dump(said_by(programs_of(document.read_text(encoding="utf-8")), program_file), sys.stdout)
