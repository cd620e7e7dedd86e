"""The obligations of a layout and of the index tensors that are made from it, for all lengths.

Goals about one request leave everything that other requests decide open, and so hold in any batch; goals about a batch
are for a fixed number of requests. A goal may take for given what another obligation proves, where its function says so.

How they make the whole: a row is a token (`rows`), a token has one written copy (`one_writer`), a copy has a place of its
own on its rank (`places`, `place_ranges`) below `nnz_padded` (`pad_target`), a place has a gathered row of its own
(`gathered`), and the restore index and the permuted slots name just that one (`restored`, `slots`).
"""

from collections.abc import Iterator

from dsa_cp.layouts import DealtLayout, formulas
from dsa_cp.tools.prove.cut import Cut
from dsa_cp.tools.prove.goals import Fact, Goal, Obligation
from dsa_cp.tools.prove.pieces import Piece
from dsa_cp.tools.prove.right import BETWEEN_REQUESTS
from dsa_cp.tools.prove.terms import Ask, Claim, Term


def _inside(token: Term, length: Term) -> tuple[Claim, ...]:
    """Return that a token is one of the first `length`."""
    return (token >= 0, token < length)


def _writers(cut: Cut, request: int, token: Term) -> Term:
    """Return how many pieces hold a token and are written."""
    are_written = (cut.logic.both(piece.holds(token), piece.written == 1) for piece in cut.pieces_of(request))
    return sum(cut.logic.choose(is_written, 1, 0) for is_written in are_written)


def _about(piece: Piece) -> str:
    return f"rank {piece.rank}, {piece.name}"


def one_writer(cut: Cut, ask: Ask) -> Iterator[Goal]:
    """Each real token of a request is in exactly one written piece, and a piece holds no token outside of its request."""
    for request in range(cut.num_requests):
        token, length = ask("token"), cut.padded[request]
        copies = Fact("copies of the token that are written", _writers(cut, request, token), "=", 1)
        yield Goal(f"request {request}", _inside(token, cut.extend[request]), (copies,), (("token", token),))
        if cut.dealt is not None:
            continue  # tokens of the batch are dealt, and a share is named by request alone
        for piece in cut.pieces_of(request):
            facts = (Fact("token", token, ">=", 0), Fact("token", token, "<", length))
            yield Goal(_about(piece), (piece.holds(token),), facts)


def places(cut: Cut, ask: Ask) -> Iterator[Goal]:
    """Tokens and places of a piece go one to one, there and back."""
    for piece in cut.all_pieces:
        token, place, length = ask("token"), ask("place"), cut.padded[piece.request]
        there, back = piece.place(token), piece.token(place)
        out = (
            Fact("place of the token", there, ">=", piece.first_place),
            Fact("place of the token", there, "<", piece.stop_place),
            Fact("token at the place of the token", piece.token(there), "=", token),
        )
        yield Goal(_about(piece), (*_inside(token, length), piece.holds(token)), out, (("token", token),))
        home = (
            Fact("token at the place", back, ">=", 0),
            Fact("token at the place", back, "<", length),
            Fact("1 where the piece holds that token", cut.logic.choose(piece.holds(back), 1, 0), "=", 1),
            Fact("place of the token at the place", piece.place(back), "=", place),
        )
        yield Goal(_about(piece), (place >= piece.first_place, place < piece.stop_place), home, (("place", place),))


def blocks(cut: Cut, ask: Ask) -> Iterator[Goal]:
    """Inside of a run of fixed length, a place holds the token after that of the place before: a run is a segment."""
    if cut.dealt is None or not cut.dealt.run:
        return
    for rank in range(cut.cp_size):
        place, ops, total = ask("place"), cut.logic.arithmetic, cut.rules.total(cut)
        here, before = (cut.dealt.token_at(at, total, cut.cp_size, rank, ops) for at in (place, place - 1))
        given = (place > 0, place % cut.dealt.run > 0)
        yield Goal(f"rank {rank}", given, (Fact("token at the place", here, "=", before + 1),), (("place", place),))


def gathered(cut: Cut, ask: Ask) -> Iterator[Goal]:
    """Places of all ranks go one to one to gathered rows, for any `nnz_padded` that is above them."""
    for rank in range(cut.cp_size):
        place, size = ask("place"), ask("nnz_padded")
        index = formulas.gathered_index(rank, size, place)
        facts = (
            Fact("gathered row", index, ">=", rank * size),
            Fact("gathered row", index, "<", (rank + 1) * size),
            Fact("place in the rank's rows", index - rank * size, "=", place),
        )
        yield Goal(f"rank {rank}", _inside(place, size), facts, (("place", place), ("nnz_padded", size)))


def restored(cut: Cut, ask: Ask) -> Iterator[Goal]:
    """The restore index of a row is where its written copy stands. Given: it has one."""
    for request in range(cut.num_requests):
        token = ask("token")
        index, is_one = cut.rules.restore(cut, request, token), _writers(cut, request, token) == 1
        for piece in cut.pieces_of(request):
            given = (*_inside(token, cut.extend[request]), is_one, piece.holds(token), piece.written == 1)
            fact = Fact("restore index of the token", index, "=", cut.gathered_index(piece, token))
            yield Goal(_about(piece), given, (fact,), (("token", token),))


def place_ranges(cut: Cut, ask: Ask) -> Iterator[Goal]:
    """The places of a rank's pieces follow one another, from 0 to the rank's rows."""
    for rank, pieces in enumerate(cut.pieces):
        place: Term = 0
        facts = []
        for piece in pieces:
            facts.append(Fact(f"first place of the {piece.name}", piece.first_place, "=", place))
            facts.append(Fact(f"place after the {piece.name}", piece.stop_place, ">=", piece.first_place))
            place = piece.stop_place
        facts.append(Fact("rows of the rank", cut.rank_rows[rank], "=", place))
        yield Goal(f"rank {rank}", (), tuple(facts))


def rows(cut: Cut, ask: Ask) -> Iterator[Goal]:
    """Tokens and rows go one to one: request after request, 0 to nnz - 1."""
    first: Term = 0
    for request in range(cut.num_requests):
        token = ask("token")
        fact = Fact("row of the token", cut.row(request, token), "=", first + token)
        yield Goal(f"request {request}", _inside(token, cut.extend[request]), (fact,), (("token", token),))
        first = first + cut.extend[request]
    yield Goal("the batch", (), (Fact("nnz", cut.nnz, "=", first),))


def pad_target(cut: Cut, ask: Ask) -> Iterator[Goal]:
    """`nnz_padded` holds the rows of every rank, is aligned, and one alignment less would not do.

    It is made from lengths alone, and so the same on every rank. Given: what a maximum is.
    """
    size, step, fullest, ranks = cut.nnz_padded, cut.row_alignment, cut.fullest, range(cut.cp_size)
    for rank, count in enumerate(cut.rank_rows):
        yield Goal(f"rank {rank}", (fullest >= count,), (Fact("nnz_padded", size, ">=", count),))
    yield Goal("row_alignment", (), (Fact("nnz_padded % row_alignment", size % step, "=", 0),))
    is_one = sum(cut.logic.choose(fullest == cut.rank_rows[rank], 1, 0) for rank in ranks) >= 1
    yield Goal("the fullest rank", (is_one,), (Fact("nnz_padded - row_alignment", size - step, "<", fullest),))


def counted(cut: Cut, ask: Ask) -> Iterator[Goal]:
    """The rows of a piece that are counted as real are those of real tokens, and no more than its rows."""
    for piece in cut.all_pieces:
        size = Fact("rows of the piece, padding included", piece.stop_place - piece.first_place, ">=", piece.real)
        yield Goal(_about(piece), (), (Fact("real rows of the piece", piece.real, ">=", 0), size))
        token, request = ask("token"), piece.request
        given = (*_inside(token, cut.padded[request]), piece.holds(token))
        is_real = cut.logic.choose(token < cut.extend[request], 1, 0)
        is_counted = cut.logic.choose(piece.place(token) - piece.first_place < piece.real, 1, 0)
        yield Goal(_about(piece), given, (Fact("1 where it counts", is_counted, "=", is_real),), (("token", token),))


def rank_lens(cut: Cut, ask: Ask) -> Iterator[Goal]:
    """`nnz_local` is the sum over the rank's pieces."""
    for rank, pieces in enumerate(cut.pieces):
        real = sum(piece.real for piece in pieces)
        yield Goal(f"rank {rank}", (), (Fact("nnz_local", cut.rules.rank_len(cut, rank), "=", real),))


def positions(cut: Cut, ask: Ask) -> Iterator[Goal]:
    """A local row's position is prefix + index in its own request, and it sees one key more."""
    for request in range(cut.num_requests):
        token = ask("token")
        position = cut.prefix[request] + token
        for piece in cut.pieces_of(request):
            facts = (
                Fact("position", cut.rules.position(cut, piece, token), "=", position),
                Fact("causal_len", cut.rules.causal_len(cut, piece, token), "=", position + 1),
            )
            given = (*_inside(token, cut.extend[request]), piece.holds(token))
            yield Goal(_about(piece), given, facts, (("token", token),))


def slots(cut: Cut, ask: Ask) -> Iterator[Goal]:
    """The written copy of a row goes to that row's slot; padding and other copies go nowhere.

    Given: a row has one written copy, its restore index is where that stands, and places are below `nnz_padded`.
    """
    for request in range(cut.num_requests):
        token = ask("token")
        index, is_one = cut.rules.restore(cut, request, token), _writers(cut, request, token) == 1
        pieces, shown = cut.pieces_of(request), (("token", token),)
        fits = [_fits(cut, piece, token) for piece in pieces]
        for piece in pieces:
            here, real = cut.rules.slot_row(cut, piece, token), _inside(token, cut.extend[request])
            given = (*real, piece.holds(token), piece.written == 1, index == cut.gathered_index(piece, token))
            fact = Fact("row whose slot it goes to", here, "=", cut.row(request, token))
            yield Goal(_about(piece), given, (fact,), shown)
            nowhere = (Fact("row whose slot it goes to", here, "=", -1),)
            given = (token >= cut.extend[request], token < cut.padded[request], piece.holds(token))
            yield Goal(f"{_about(piece)}, padding", given, nowhere, shown)
            if not (isinstance(piece.written, int) and piece.written == 1):
                given = (*real, piece.holds(token), piece.written == 0, is_one, *fits)
                yield Goal(f"{_about(piece)}, not written", given, nowhere, shown)


def _fits(cut: Cut, piece: Piece, token: Term) -> Claim:
    """Return that the place of a token is one of the rank's `nnz_padded`, where the piece holds it."""
    place = piece.place(token)
    return cut.logic.choose(piece.holds(token), cut.logic.both(place >= 0, place < cut.nnz_padded), True)


def local_lens(cut: Cut, ask: Ask) -> Iterator[Goal]:
    """A rank's part of the first g tokens is none at g = 0, and grows by one where token g is the rank's."""
    if cut.dealt is None:
        return
    length, total = ask("length"), cut.rules.total(cut)
    owner = cut.dealt.owner(length, total, cut.cp_size, cut.logic.arithmetic)
    for rank in range(cut.cp_size):
        none, here, more = (cut.rules.local_len(cut, rank, at, total) for at in (0, length, length + 1))
        yield Goal(f"rank {rank}", (), (Fact("its tokens among the first 0", none, "=", 0),))
        step = Fact("its tokens among the first length + 1", more, "=", here + cut.logic.choose(owner == rank, 1, 0))
        yield Goal(f"rank {rank}", _inside(length, total), (step,), (("length", length),))


ROWS_HAVE_ONE_WRITER = Obligation(
    "rows_have_one_writer", "each row is written by exactly one rank", (one_writer,), tells_decodes=True
)
RESTORE_IS_BIJECTION = Obligation(
    "restore_is_bijection",
    "shard, gather, restore: each row of 0 to nnz - 1 comes back, once",
    (places, blocks, gathered, restored),
    (place_ranges, rows),
    tells_decodes=True,
)
PAD_TARGET_IS_LEAST = Obligation(
    "pad_target_is_least",
    "nnz_padded is the least multiple of row_alignment that holds the rows of every rank",
    (pad_target,),
    loosens=(*BETWEEN_REQUESTS, "fullest"),
)
RANK_LENS_COUNT_ROWS = Obligation(
    "rank_lens_count_rows",
    "nnz_local is the number of the rank's rows, padding not counted",
    (counted,),
    (rank_lens,),
    tells_decodes=True,
)
POSITIONS_MATCH_ROWS = Obligation(
    "positions_match_rows",
    "position is prefix + index, causal_len one more, in local order",
    of_batch=(positions,),
)
SLOTS_WRITTEN_ONCE = Obligation(
    "slots_written_once", "the permuted out_cache_loc writes each row to its slot, once", (slots,), tells_decodes=True
)
LOCAL_LENS_ADD_UP = Obligation(
    "local_lens_add_up",
    "the local length of a global length counts the rank's tokens among those that are dealt",
    (local_lens,),
    applies=lambda layout: isinstance(layout, DealtLayout),
)

OBLIGATIONS = (
    ROWS_HAVE_ONE_WRITER,
    RESTORE_IS_BIJECTION,
    PAD_TARGET_IS_LEAST,
    RANK_LENS_COUNT_ROWS,
    POSITIONS_MATCH_ROWS,
    SLOTS_WRITTEN_ONCE,
    LOCAL_LENS_ADD_UP,
)
