"""The dims of the attention path. What a dim is, and how it is written, is in `core.marks`."""

from dsa_contracts.core.marks import Dim


class Nnz(Dim):
    """Real tokens of the batch over all ranks, in sequence order."""


class NnzLocal(Dim):
    """Real tokens that this rank holds."""


class NnzPadded(Dim):
    """Rows of this rank in the collective, the same on every rank."""


class NnzGathered(Dim):
    """Rows that come out of the collective: `cp_size * nnz_padded`, padding included."""


class NnzShard(Dim):
    """Rows of this rank's tensors where an engine shapes them otherwise than the collective."""

    optional = True


class NnzEngine(Dim):
    """Rows of all ranks as an engine carries them, where that is not the tokens of the batch."""

    optional = True


class NumLocalHeads(Dim):
    """Query heads on this rank (tensor parallelism divides heads, context parallelism does not)."""


class NumIndexHeads(Dim):
    """Query heads of the lightning indexer."""


class KvLoraRank(Dim):
    """Width of the KV latent, 512."""


class QkRopeHeadDim(Dim):
    """Width of the rotated part of a query head and of the key, 64."""


class QkHeadDim(Dim):
    """Width of a merged query row: `kv_lora_rank + qk_rope_head_dim`, 576."""


class IndexHeadDim(Dim):
    """Width of an indexer query head and of the indexer key, 128."""


class IndexTopk(Dim):
    """Keys that a row attends to, at most (2048); also the width of `topk_indices`."""

    varies = True


class RowBytes(Dim):
    """Bytes of one packed row; its row format says how many that must be."""

    varies = True


class IndexRowBytes(Dim):
    """Bytes of one packed row of the indexer, where KV rows stand beside it in one call."""


class NumPages(Dim):
    """Pages of the KV pool."""

    varies = True


class PageSize(Dim):
    """Slots of a page."""


class NumSlots(Dim):
    """Slots of the KV pool: `num_pages * page_size`."""

    varies = True


class NumRequests(Dim):
    """Requests of the batch."""


class MaxPages(Dim):
    """Columns of the page table."""

    varies = True


class MaxPosition(Dim):
    """Rows of the cos/sin table."""

    varies = True


class CosSinWidth(Dim):
    """Width of the cos/sin table: `rope_dim / 2` cosines, then as many sines."""

    varies = True
