"""Named invariants: facts about a call that neither a shape nor a brand can say.

An invariant has a name that is a fact, a code, and a function of the call that returns what is wrong, or None. Those that
read device data (`reads_data`) run in `values` mode only; the others are functions of metadata and host numbers, so that
a call that passed once need not be looked at again.
"""

from dsa_contracts.core.invariant import Call, Invariant
from dsa_contracts.dsa.invariants.contents import (
    empty_rows_are_inert,
    gathered_in_rank_order,
    padding_rows_are_zero,
    pages_are_in_pool,
    scales_in_rows_are_positive,
    topk_is_in_range,
)
from dsa_contracts.dsa.invariants.metadata import (
    comm_is_the_batch_group,
    page_size_is_the_batch_page_size,
    page_table_covers_batch,
    rotates_at_most_all,
    row_width_matches_format,
    scale_is_one_unless_a_layer_has_one,
    scale_is_positive,
    table_covers_positions,
    table_width_is_rope_dim,
    width_is_argument,
    widths_add_up,
    widths_match_format,
)
from dsa_contracts.dsa.invariants.results import (
    choice_is_full,
    own_rows_stand_in_their_place,
    rows_are_restored,
    rows_stand_in_their_slots,
)
from dsa_contracts.dsa.invariants.rows import (
    local_values_match_rows,
    positions_go_with,
    rows_are_this_ranks,
    slots_are_legal,
    slots_are_on_their_pages,
)
from dsa_contracts.dsa.invariants.tables import page_table_is_the_batchs, pages_have_one_writer, table_is_cosines_then_sines

__all__ = [
    "Call",
    "Invariant",
    "choice_is_full",
    "comm_is_the_batch_group",
    "empty_rows_are_inert",
    "gathered_in_rank_order",
    "local_values_match_rows",
    "own_rows_stand_in_their_place",
    "padding_rows_are_zero",
    "page_size_is_the_batch_page_size",
    "page_table_covers_batch",
    "page_table_is_the_batchs",
    "pages_are_in_pool",
    "pages_have_one_writer",
    "positions_go_with",
    "rotates_at_most_all",
    "row_width_matches_format",
    "rows_are_restored",
    "rows_are_this_ranks",
    "rows_stand_in_their_slots",
    "scale_is_one_unless_a_layer_has_one",
    "scale_is_positive",
    "scales_in_rows_are_positive",
    "slots_are_legal",
    "slots_are_on_their_pages",
    "table_covers_positions",
    "table_is_cosines_then_sines",
    "table_width_is_rope_dim",
    "topk_is_in_range",
    "width_is_argument",
    "widths_add_up",
    "widths_match_format",
]
