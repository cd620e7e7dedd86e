"""The steps of a composition as the tensor code does them: the counterpart of `wrong`."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from dsa_cp.layouts import formulas
from dsa_cp.tools.prove.cut import Cut, Rules
from dsa_cp.tools.prove.pieces import Piece
from dsa_cp.tools.prove.terms import Ask, Term


def first_row(cut: Cut, request: int) -> Term:
    """Return the real tokens of the requests before this one."""
    return sum(cut.extend[:request])


def first_token(cut: Cut, request: int) -> Term:
    """Return the tokens of the requests before this one, engine padding included."""
    return sum(cut.padded[:request])


def total(cut: Cut) -> Term:
    """Return the tokens of all requests, engine padding included."""
    return sum(cut.padded)


def ordinal(cut: Cut, request: int) -> Term:
    """Return the decodes before this request."""
    return sum(cut.decodes[:request])


def first_place(cut: Cut, rank: int, slot: int) -> Term:
    """Return the rows of the rank's slots before this one, summed up as `cumsum` does: each sum is the last and one more."""
    if slot == 0:
        return 0
    start, stop = cut.bounds(rank, slot - 1)
    return first_place(cut, rank, slot - 1) + (stop - start)


def rows(cut: Cut, rank: int) -> Term:
    """Return the rows of all slots of the rank; of a dealt layout, its tokens among all."""
    if cut.dealt is not None:
        return cut.count_before(rank, cut.rules.total(cut))
    return first_place(cut, rank, len(cut.slots))


def written(cut: Cut, rank: int, request: int) -> Term:
    """Return 1 where the rank writes its rows of the request."""
    if cut.dealt is not None:
        return 1
    is_written = cut.chunked.decode_written if cut.is_decode(request) else cut.chunked.written
    return is_written(cut.padded[request], cut.cp_size, rank, cut.logic.arithmetic)


def fullest(cut: Cut) -> Term:
    """Return the largest of the ranks' rows."""
    return cut.logic.largest(cut.rank_rows)


def pad_target(cut: Cut) -> Term:
    """Return the rows of the fullest rank, rounded up to the alignment."""
    return formulas.padded_size(cut.fullest, cut.row_alignment, cut.logic.arithmetic)


def rank_len(cut: Cut, rank: int) -> Term:
    """Return the real rows of all pieces of the rank."""
    return sum(piece.real for piece in cut.pieces[rank])


def prefix_len(cut: Cut, request: int) -> Term:
    """Return the cached tokens of the request, as they are given."""
    return cut.prefix[request]


def position_of_row(cut: Cut, row: Term) -> Term:
    """Return the position of a row: prefix of its request, and its index there."""
    found: Term = 0
    for request in range(cut.num_requests):
        start = cut.rules.first_row(cut, request)
        here = formulas.position_of(cut.rules.prefix_len(cut, request), row - start)
        found = here if request == 0 else cut.logic.choose(row >= start, here, found)
    return found


def position(cut: Cut, piece: Piece, token: Term) -> Term:
    """Return the position of the token's row, looked up by row as a local index does."""
    return position_of_row(cut, cut.row(piece.request, token))


def causal_len(cut: Cut, piece: Piece, token: Term) -> Term:
    """Return the keys that the token's row may see."""
    return formulas.causal_len_of(cut.rules.position(cut, piece, token))


def restore(cut: Cut, request: int, token: Term) -> Term:
    """Return where the written copy of the token stands."""
    found: Term = -1
    for piece in reversed(cut.pieces_of(request)):
        is_it = cut.logic.both(piece.holds(token), piece.written == 1)
        found = cut.logic.choose(is_it, cut.gathered_index(piece, token), found)
    return found


def slot_row(cut: Cut, piece: Piece, token: Term) -> Term:
    """Return the token's row where this copy is the one that its restore index names, else -1."""
    is_real = token < cut.extend[piece.request]
    is_named = cut.rules.restore(cut, piece.request, token) == cut.gathered_index(piece, token)
    return cut.logic.choose(cut.logic.both(is_real, is_named), cut.row(piece.request, token), -1)


def local_len(cut: Cut, rank: int, length: Term, total: Term) -> Term:
    """Return a dealt layout's rows of the rank among the first `length` tokens, from that global length alone."""
    return cut.count_before(rank, length)


RIGHT = Rules(
    first_row=first_row,
    first_token=first_token,
    total=total,
    ordinal=ordinal,
    first_place=first_place,
    rows=rows,
    written=written,
    fullest=fullest,
    pad_target=pad_target,
    rank_len=rank_len,
    prefix_len=prefix_len,
    position=position,
    causal_len=causal_len,
    restore=restore,
    slot_row=slot_row,
    local_len=local_len,
)


BETWEEN_REQUESTS = ("first_row", "first_token", "total", "ordinal", "first_place", "rows", "rank_len")
"""Rules whose values depend on all requests of a batch."""


def loosened(rules: Rules, names: Sequence[str], ask: Ask) -> Rules:
    """Return rules of which some give unknown values: what holds then, holds whatever the other requests are.

    Args:
        rules: the rules to loosen.
        names: the rules whose value is some int from 0 on, one for each rank, request or slot.
        ask: gives the unknown values.
    """

    def unknown(name: str) -> Callable[..., Term]:
        made: dict[tuple[int, ...], Term] = {}

        def value(cut: Cut, *key: int) -> Term:
            if key not in made:
                made[key] = ask(name, 0)
            return made[key]

        return value

    return replace(rules, **{name: unknown(name) for name in names})
