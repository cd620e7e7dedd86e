"""What a plan decides, each with its reason and where the fact behind it was read."""

from pydantic import BaseModel, ConfigDict

import dsa_contracts.stages as stubs
from dsa_contracts import contract_of
from dsa_contracts.dsa.row_formats import index_bf16_format, index_fp8_format
from dsa_cp.planner.choice import Candidate, effects
from dsa_cp.planner.keys import KeyState, format_named
from dsa_cp.planner.moves import Move, optional_metadata
from dsa_cp.planner.refusals import PlanQuestion

_SCALES = ("one", "layer", "rows")


class Decision(BaseModel):
    """One decision: what, how, why, and where the fact was read (empty: from the contracts)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    what: str
    value: str
    reason: str
    source: str = ""


class MetadataNeed(BaseModel):
    """A field that the engine must build, what it is, and who asks for it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    field: str
    purpose: str
    source: str


def decisions(question: PlanQuestion, chosen: Candidate) -> tuple[Decision, ...]:
    """Return what is decided for a question and a placement, in a fixed order."""
    return (
        _gather(question, chosen),
        _rotation(question, chosen),
        _slots(chosen),
        _kv_scale(question),
        _padding_length(question),
        _halves_strides(question),
        _reading(question),
        _index_key(question, chosen),
    )


def is_work(before: KeyState, after: KeyState) -> bool:
    """Whether a stage rotates or quantises K, and does not only pack or split it."""
    return before.rope != after.rope or before.is_quantized != after.is_quantized


def gather_at(moves: tuple[Move, ...]) -> int:
    """Return the place of the collective among moves."""
    return next(at for at, move in enumerate(moves) if move.contract.comm_param is not None)


def _gather(question: PlanQuestion, chosen: Candidate) -> Decision:
    """Say where K is gathered."""
    options, path = question.options, chosen.path
    at = gather_at(path.moves)
    if options.ranks == 1:
        who = "cp_size is 1" if options.phase == "prefill" else "decode is not sharded"
        return Decision(what="gather", value="none", reason=f"{who}: this rank has all rows, no byte is sent")
    row, works = path.keys[at], [n for n in range(at) if is_work(path.keys[n], path.keys[n + 1])]
    before = path.moves[works[-1] if works else at - 1].contract.name
    reason = f"{row.bytes_per_token} bytes a token on the wire, K {row.rope}, {row.dtype}"
    return Decision(what="gather", value=f"after {before}", reason=reason)


def _rotation(question: PlanQuestion, chosen: Candidate) -> Decision:
    """Say who rotates K."""
    options, capability = question.options, question.running
    rotation = capability.rotation(options.kv_format)
    at = next(at for at, keys in enumerate(chosen.path.keys) if keys.rope == "rotated") - 1
    stage, rows = chosen.path.moves[at].contract.name, chosen.path.keys[at].rows
    whose = "this rank's" if rows == "local" else "all ranks'"
    if rotation is None:
        reason = f"{capability.name} takes {options.kv_format} rows rotated: {stage}, with {whose} positions"
        return Decision(what="rotation", value="path", reason=reason)
    if rotation.fused_with == "cache write" and options.ranks > 1:
        reason = f"the fused cache write of {capability.name} is bypassed: it leaves K in the pool before it is gathered"
        return Decision(what="rotation", value="path", reason=reason, source=rotation.source)
    reason = f"{capability.name} rotates in its {rotation.fused_with}: K is raw until then, positions are {whose}"
    return Decision(what="rotation", value="backend", reason=reason, source=rotation.source)


def _slots(chosen: Candidate) -> Decision:
    """Say which slots the pool is written with."""
    source = next(source for move in chosen.path.moves for name, source in move.sources if name == "loc")
    is_restored = any(keys.order == "sequence" for keys in chosen.path.keys)
    reason = "a stage before took the batch's order" if is_restored else "rows are written in the order of the gather"
    return Decision(what="slots", value=source, reason=reason)


def _kv_scale(question: PlanQuestion) -> Decision:
    """Say which scale stored values have: the smallest freedom of the two backends (B21)."""
    options = question.options
    readings = [capability.reading(options.kv_format, phase) for capability, phase in question.users]
    scales = [reading for reading in readings if reading is not None]
    least = min(scales, key=lambda reading: _SCALES.index(reading.kv_scale))
    reasons = {
        "one": f"no scale is applied to {options.kv_format} rows here; a checkpoint's k_scale counts as 1",
        "layer": "one scale a layer: quantised with it and read with it",
        "rows": "each row carries the scales of its groups",
    }
    return Decision(what="kv_scale", value=least.kv_scale, reason=reasons[least.kv_scale], source=least.source)


def _padding_length(question: PlanQuestion) -> Decision:
    """Say which length padding rows have (B33)."""
    fact = question.running.zero_length_rows
    if fact.value:
        return Decision(what="padding_length", value="0", reason="a row that sees no key is legal", source=fact.source)
    reason = "rows without keys are not known to be legal: padding sees one key, in a page kept for it"
    return Decision(what="padding_length", value="1", reason=reason, source=fact.source)


def _halves_strides(question: PlanQuestion) -> Decision:
    """Say which strides split_kv is asked for where an engine's cache write takes halves."""
    fact = question.running.halves_strides
    reason = (
        "its cache write takes views of packed rows" if fact.value == "PackedRowStride" else "its cache write gets copies"
    )
    return Decision(what="halves_strides", value=fact.value, reason=reason, source=fact.source)


def _reading(question: PlanQuestion) -> Decision:
    """Say how the pool is read."""
    options = question.options
    reading = question.running.reading(options.kv_format, options.phase)
    if reading is None or not reading.converts:
        source = "" if reading is None else reading.source
        return Decision(what="reading", value="as stored", reason="the kernel reads these rows", source=source)
    return Decision(what="reading", value="converted", reason=reading.converts, source=reading.source)


def _index_key(question: PlanQuestion, chosen: Candidate) -> Decision:
    """Say whether the indexer's key goes with K's rows."""
    index = index_fp8_format() if format_named(question.options.kv_format).is_quantized else index_bf16_format()
    if "wire" not in effects(chosen.path, question.options.ranks):
        return Decision(what="index_key", value="not sent", reason="nothing is gathered")
    at = gather_at(chosen.path.moves)
    total = chosen.path.keys[at].bytes_per_token + index.row_bytes
    packed = "both keys are packed on this rank before the gather"
    if chosen.path.gathers_into_pool:
        reason = f"{packed}: one collective of {total} bytes a token puts both into the pools"
        return Decision(what="index_key", value="rides with K's row", reason=reason)
    reason = f"{packed}: one collective of {total} bytes a token would do; the path gathers each by itself"
    return Decision(what="index_key", value="may ride in K's row", reason=reason)


def metadata_needs(question: PlanQuestion, chosen: Candidate) -> tuple[MetadataNeed, ...]:
    """Return what the engine must build: optional fields that the stages read, and what the backend needs (B29)."""
    options, capability = question.options, question.running
    found = {}
    reader = contract_of(stubs.attend)
    asked = [(move.contract, name, source) for move in chosen.path.moves for name, source in move.sources]
    asked += [(reader, name, source) for name, sources in reader.sources for source in sources]
    for contract, name, source in asked:
        field = optional_metadata(source)
        if field is not None:
            purpose = f"{name} of {contract.name}"
            found[field] = MetadataNeed(field=field, purpose=purpose, source=contract.location)
    for need in capability.needed(options.kv_format, options.phase, prefix=options.prefix):
        found[need.field] = MetadataNeed(field=need.field, purpose=need.purpose, source=need.source)
    return tuple(found.values())
