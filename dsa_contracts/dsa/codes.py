"""The codes that the DSA vocabulary adds to those of the core, and the errors of batches, plans and traces."""

from dsa_contracts.core.errors import ContractError, add_codes

DSA_CODES: dict[str, str] = {
    "DSA110": "the width of a packed row is not the width of its row format",
    "DSA111": "the cos/sin table does not fit: too few rows for the positions, the wrong width, or other numbers",
    "DSA112": "a scale is not finite and positive, or is not 1 where nothing is quantised",
    "DSA113": "the collective group is not the context-parallel group of the batch",
    "DSA114": "the KV pool, its page size and its page table do not fit together, or are not those of the batch",
    "DSA115": "a position is not prefix + index of its row",
    "DSA116": "a slot is out of range, used twice, not that of its row, or does not hold its row after the write",
    "DSA117": "a per-row length is not position + 1 of its row",
    "DSA118": "a top-k entry is neither -1 nor below the length of its row, or a list is not full",
    "DSA119": "row indices, or rows put in order by them, are not those of this rank, layout and batch",
    "DSA120": "a padding row is not inert",
    "DSA121": "a row that attends to nothing does not have out 0 and lse -inf",
    "DSA122": "gathered rows are not in the order of the ranks of the group",
    "DSA124": "the number of heads or a head dim does not fit the model of the batch",
    "DSA301": "lengths of a batch do not fit together",
    "DSA302": "a context-parallel size or rank is not legal",
    "DSA303": "a layout does not cover the batch: rows lost, doubled, or padded to too few",
    "DSA304": "metadata that the backend or the batch needs is missing",
    "DSA401": "no plan fits: a capability is missing",
    "DSA402": "a plan does not fit the contracts of its stages",
    "DSA601": "a trace file is not readable as one",
}

DSA_TRIES: dict[str, str] = {
    "DSA110": "pass rows and the row format that they were packed in; a format says how wide its rows are",
    "DSA111": "pass the model's own cos/sin table, with a row for every position up to the longest sequence",
    "DSA112": "pass a finite scale above 0; 1.0 where nothing is quantised",
    "DSA113": "pass the context-parallel group, not the one of tensor or expert parallelism",
    "DSA114": "pass pool, page size and page table of the same pool, as the batch has them",
    "DSA115": "pass the positions that rebuild_positions returned for these rows",
    "DSA116": "pass the slot mapping of the same rows, each slot inside of the pool and written once",
    "DSA117": "pass the lengths that reorder_causal_lens returned for these rows",
    "DSA118": "pass the list that select_topk returned: -1 behind its keys, and no key past the length of its row",
    "DSA119": "pass batch.local_rows or batch.padded_rows of this rank's view of the batch",
    "DSA120": "set padding rows to zero before the stage, and leave them out after it",
    "DSA121": "write out 0 and lse -inf for a row that attends to no key",
    "DSA122": "gather in the order of the ranks of the context-parallel group",
    "DSA124": "pass heads and head dims as the batch has bound them for its model",
    "DSA301": "give each request the tokens that it adds and those that are cached, both at least 0",
    "DSA302": "give a size of at least 1 and a rank below it",
    "DSA303": "give every token one owner, and pad to at least the rows of the fullest rank",
    "DSA304": "give the batch the metadata that the message names",
    "DSA401": "change the option that the message names, or take a backend that has the capability",
    "DSA402": "move or add the stage that brings the tensor into the state that the contract names",
    "DSA601": "give a file with one request a line, as the demo's trace has",
}
"""What to do about each of them where nothing more is known."""

add_codes(DSA_CODES, DSA_TRIES)


class BatchError(ContractError):
    """The facts of a batch do not fit together."""

    default_code = "DSA301"


class PlanError(ContractError):
    """No plan, or not this plan, fits."""

    default_code = "DSA401"


class TraceError(ContractError):
    """A trace file cannot be read."""

    default_code = "DSA601"
