"""Wrong variants: formulas that engines have had, each in the place of the right one in the same obligation.

Each has a smallest counter-example, which a test replays against real batches.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dsa_contracts.core.errors import ArgumentError
from dsa_cp.layouts import formulas
from dsa_cp.tools.prove import obligations
from dsa_cp.tools.prove.cut import Cut, Rules
from dsa_cp.tools.prove.goals import Obligation
from dsa_cp.tools.prove.pieces import Piece
from dsa_cp.tools.prove.right import RIGHT, position_of_row
from dsa_cp.tools.prove.stage_fit import GATHER_BEFORE_ROPE_FITS
from dsa_cp.tools.prove.terms import Claim, Term


def ceil_of_all_tokens(cut: Cut) -> Term:
    """Return ceil(tokens / cp_size), rounded up to the alignment."""
    ops = cut.logic.arithmetic
    return formulas.padded_size(formulas.ceil_div(sum(cut.padded), cut.cp_size, ops), cut.row_alignment, ops)


def nnz_per_rank(cut: Cut, rank: int) -> Term:
    """Return nnz // cp_size, on every rank."""
    return cut.logic.arithmetic.divide(cut.nnz, cut.cp_size)


def padding_counted(cut: Cut, rank: int) -> Term:
    """Return the rows of the rank with engine padding."""
    return cut.rank_rows[rank]


def total_less_padded(cut: Cut, request: int) -> Term:
    """Return total - padded new tokens, a negative difference clamped to 0."""
    return cut.logic.arithmetic.larger(cut.prefix[request] + cut.extend[request] - cut.padded[request], 0)


def real_lens_per_rank(cut: Cut, rank: int, slot: int) -> Term:
    """Return (real tokens of the requests before) // cp_size; behind it, the tail after the head."""
    request, half = cut.slots[slot]
    start, stop = cut.bounds(rank, slot - half)
    return cut.logic.arithmetic.divide(sum(cut.extend[:request]), cut.cp_size) + half * (stop - start)


def subtracted_in_local_space(cut: Cut, rank: int, length: Term, total: Term) -> Term:
    """Return the rank's tokens of all, less as many as `length` falls short of all."""
    return cut.count_before(rank, total) - (total - length)


def block_of_one(cut: Cut, request: int, token: Term) -> Term:
    """Return token % cp_size as rank and token // cp_size as place, whatever the block."""
    flat = cut.rules.first_token(cut, request) + token
    place, found = cut.logic.arithmetic.divide(flat, cut.cp_size), -1
    for rank in range(cut.cp_size):
        index = formulas.gathered_index(rank, cut.nnz_padded, place)
        found = cut.logic.choose(flat % cut.cp_size == rank, index, found)
    return found


def length_at_place(cut: Cut, piece: Piece, token: Term) -> Term:
    """Return the causal len of the row whose number is the token's local place."""
    return formulas.causal_len_of(position_of_row(cut, piece.place(token)))


def position_in_batch(cut: Cut, piece: Piece, token: Term) -> Term:
    """Return prefix + row: the index in the flattened batch instead of in the request."""
    return formulas.position_of(cut.rules.prefix_len(cut, piece.request), cut.row(piece.request, token))


def always_written(cut: Cut, rank: int, request: int) -> Term:
    """Return 1 on every rank."""
    return 1


def slot_in_rank_order(cut: Cut, piece: Piece, token: Term) -> Term:
    """Return the copy's number among the rows of all ranks, rank after rank without padding, as if that were its row."""
    before = sum(cut.rank_rows[: piece.rank])
    is_row = cut.logic.both(token < cut.extend[piece.request], piece.written == 1)
    return cut.logic.choose(is_row, before + piece.place(token), -1)


def _nothing(cut: Cut) -> list[Claim]:
    return []


def _padded_to_chunks(cut: Cut) -> list[Claim]:
    """Return that the engine pads each request to a multiple of `2 * cp_size`."""
    return [length % (2 * cut.cp_size) == 0 for length in cut.padded]


@dataclass(frozen=True)
class Variant:
    """A wrong formula.

    Attributes:
        name: what `--variant` takes.
        formula: what is wrong, as a formula or in words.
        right: what is right.
        source: the public report it comes from.
        obligation: what it breaks.
        layouts: layouts that it is about.
        rules: the rules with the wrong one among them.
        assumes: what holds of batches in the engine that it comes from.
    """

    name: str
    formula: str
    right: str
    source: str
    obligation: Obligation
    layouts: tuple[str, ...]
    rules: Rules = field(default=RIGHT, repr=False)
    assumes: Callable[[Cut], list[Claim]] = field(default=_nothing, repr=False)


_ZIGZAGS = ("zigzag", "vllm_zigzag", "vllm_replicated")
_BLOCKS = ("interleave(block=16)", "interleave(block=64)")
_ALL = ("zigzag", "interleave", *_BLOCKS, "vllm_zigzag", "vllm_replicated")

_VARIANTS = (
    Variant(
        "pad_ceil_nnz",
        "nnz_padded = ceil(tokens / cp_size)",
        "the rows of the fullest rank: remainders of several requests pile up on the same ranks",
        "B09, sgl-project/sglang#23269",
        obligations.PAD_TARGET_IS_LEAST,
        (*_ZIGZAGS, *_BLOCKS),
        replace(RIGHT, pad_target=ceil_of_all_tokens),
    ),
    Variant(
        "uniform_rank_lens",
        "nnz_local = nnz // cp_size on every rank",
        "the real tokens of the rank's own chunks",
        "B42, NVIDIA/TransformerEngine#3331",
        obligations.RANK_LENS_COUNT_ROWS,
        _ALL,
        replace(RIGHT, rank_len=nnz_per_rank),
    ),
    Variant(
        "padding_counted",
        "nnz_local = rows of the rank, engine padding counted",
        "the real tokens of the rank's own chunks",
        "B42, NVIDIA/TransformerEngine#3331",
        obligations.RANK_LENS_COUNT_ROWS,
        _ALL,
        replace(RIGHT, rank_len=padding_counted),
    ),
    Variant(
        "prefix_from_padded",
        "prefix_len = max(total - padded_len, 0)",
        "prefix_len = total - extend_len, both without padding",
        "B08, sgl-project/sglang#23415",
        obligations.POSITIONS_MATCH_ROWS,
        _ALL,
        replace(RIGHT, prefix_len=total_less_padded),
    ),
    Variant(
        "borders_from_real_lens",
        "a request's first place = (real tokens before it) // cp_size, where padded lengths were cut",
        "the rows of the rank's chunks before it, engine padding included",
        "B43, NVIDIA/Megatron-LM#4495",
        obligations.RESTORE_IS_BIJECTION,
        ("vllm_zigzag",),
        replace(RIGHT, first_place=real_lens_per_rank),
        _padded_to_chunks,
    ),
    Variant(
        "localised_by_subtraction",
        "local length of g tokens = local length of all - (all - g)",
        "count the rank's tokens among the first g, from g itself",
        "B38, vllm-project/vllm#46076",
        obligations.LOCAL_LENS_ADD_UP,
        ("interleave", *_BLOCKS),
        replace(RIGHT, local_len=subtracted_in_local_space),
    ),
    Variant(
        "restore_block_one",
        "rank = token % cp_size, place = token // cp_size, where blocks are dealt",
        "rank = (token // block) % cp_size, place = the rank's tokens before it",
        "vllm-project/vllm#56715",
        obligations.RESTORE_IS_BIJECTION,
        _BLOCKS,
        replace(RIGHT, restore=block_of_one),
    ),
    Variant(
        "identity_causal_lens",
        "the row at local place p takes causal_lens[p]",
        "causal_lens[row at local place p]: lengths are put into local order",
        "B01, sgl-project/sglang#29161",
        obligations.POSITIONS_MATCH_ROWS,
        _ALL,
        replace(RIGHT, causal_len=length_at_place),
    ),
    Variant(
        "positions_of_batch",
        "position = prefix + index in the flattened batch",
        "prefix + index in the row's own request",
        "invariant I4 of bugs.md",
        obligations.POSITIONS_MATCH_ROWS,
        _ALL,
        replace(RIGHT, position=position_in_batch),
    ),
    Variant(
        "replicas_all_write",
        "every rank writes its copy of a replicated request",
        "rank 0 writes it for all ranks",
        "vLLM 0.33, replicated_requests of pcp_manager.py",
        obligations.ROWS_HAVE_ONE_WRITER,
        ("vllm_replicated",),
        replace(RIGHT, written=always_written),
    ),
    Variant(
        "slots_not_permuted",
        "row i of all ranks' rows, rank after rank without padding, is written to out_cache_loc[i]",
        "out_cache_loc is put into the order of the gathered rows first",
        "B01, sgl-project/sglang#29161",
        obligations.SLOTS_WRITTEN_ONCE,
        _ALL,
        replace(RIGHT, slot_row=slot_in_rank_order),
    ),
    Variant(
        "gather_before_rope",
        "K is gathered before rope_quantize, q and positions are this rank's",
        "gather after rope_quantize: all six tensors have one number of rows",
        "B01, sgl-project/sglang#29161",
        GATHER_BEFORE_ROPE_FITS,
        _ALL,
    ),
)

VARIANTS = {variant.name: variant for variant in _VARIANTS}


def variant_by_name(name: str) -> Variant:
    """Return a variant; raises ArgumentError DSA602 naming the variants there are."""
    if name not in VARIANTS:
        raise ArgumentError(f"variant {name!r} is not known; known are {', '.join(VARIANTS)}")
    return VARIANTS[name]
