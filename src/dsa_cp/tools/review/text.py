"""The catalogue as plain text, for a terminal: one block a stage, columns in line, no colours."""

import textwrap
from collections.abc import Sequence

from dsa_cp.tools.review.contract_facts import InvariantFacts, ParamFacts
from dsa_cp.tools.review.stage_catalogue import StageView, stage_views

_LABEL = 10
"""Width of the column of labels."""


def text(names: Sequence[str] = ()) -> str:
    """Return the catalogue of the named stages, or of all."""
    return "\n".join("".join(f"{line}\n" for line in _block(view)) for view in stage_views(names))


def _block(view: StageView) -> list[str]:
    """Return the lines of one stage."""
    facts = view.facts
    lines = [f"{facts.name}{'  (collective)' if facts.is_collective else ''}", *_said("", view.doc.summary)]
    lines += _labelled("takes", _columns([_row(param) for param in facts.params]))
    lines += _labelled("returns", _columns([_row(param) for param in facts.returns]) or ["nothing"])
    lines += _labelled(
        "flow", [", ".join(f"{argument} -> {result}" for argument, result in facts.flow)] if facts.flow else []
    )
    lines += _labelled("from", [f"{name}: {' or '.join(places)}" for name, places in facts.sources.items()])
    lines += _labelled("requires", [_invariant(invariant) for invariant in facts.requires])
    lines += _labelled("ensures", [_invariant(invariant) for invariant in facts.ensures])
    lines += _labelled("raises", [f"{kind}: {' '.join(codes)}" for kind, codes in facts.raises.items()])
    for name, said in view.doc.facts.items():
        lines += _said(name.lower(), said)
    lines += _said("source", view.doc.source)
    lines += _said("contract", f"{view.file}:{view.line}")
    return lines


def _row(param: ParamFacts) -> list[str]:
    """Return the cells of one parameter."""
    tensor = param.tensor
    optional = " or None" if param.is_optional else ""
    if tensor is None:
        return [param.name, param.type + optional]
    return [param.name, tensor.text + optional, tensor.rows, tensor.state, tensor.strides]


def _columns(rows: list[list[str]]) -> list[str]:
    """Return rows as lines whose cells stand under each other; a row with fewer cells ends early."""
    tensors = [row for row in rows if len(row) > 2] or rows
    widths = [max(len(row[at]) for row in tensors) for at in range(max(map(len, rows), default=0))]
    widths[:1] = [max(len(row[0]) for row in rows)] if rows else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]


def _invariant(invariant: InvariantFacts) -> str:
    reads = "; read in values mode" if invariant.reads_data else ""
    return f"{invariant.name} ({invariant.code}{reads}): {invariant.statement}"


def _labelled(label: str, lines: list[str]) -> list[str]:
    """Return lines with a label before the first."""
    return [f"  {label if at == 0 else '':<{_LABEL}}{line}" for at, line in enumerate(lines)]


def _said(label: str, said: str) -> list[str]:
    """Return a sentence folded to the width of a page, with a label before it."""
    if not said:
        return []
    indent = _LABEL if label else 0
    return _labelled(label, textwrap.wrap(said, 116 - indent, break_long_words=False)) if label else [f"  {said}"]
