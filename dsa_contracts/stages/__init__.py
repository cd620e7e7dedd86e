"""One contract a stage: a typed signature, what holds before and after, and no body."""

from dsa_contracts.stages.all_gather_kv import all_gather_kv
from dsa_contracts.stages.apply_rope import apply_rope
from dsa_contracts.stages.attend import attend
from dsa_contracts.stages.gather_write_kv import gather_write_kv
from dsa_contracts.stages.gather_write_kv_and_index import gather_write_kv_and_index
from dsa_contracts.stages.merge_q import merge_q
from dsa_contracts.stages.pack_index_key import pack_index_key
from dsa_contracts.stages.pack_kv import pack_kv
from dsa_contracts.stages.quantize_rows import quantize_rows
from dsa_contracts.stages.rebuild_positions import rebuild_positions
from dsa_contracts.stages.reorder_causal_lens import reorder_causal_lens
from dsa_contracts.stages.restore_order import restore_order
from dsa_contracts.stages.rope_quantize import rope_quantize
from dsa_contracts.stages.select_topk import select_topk
from dsa_contracts.stages.split_kv import split_kv
from dsa_contracts.stages.write_kv import write_kv

__all__ = [
    "all_gather_kv",
    "apply_rope",
    "attend",
    "gather_write_kv",
    "gather_write_kv_and_index",
    "merge_q",
    "pack_index_key",
    "pack_kv",
    "quantize_rows",
    "rebuild_positions",
    "reorder_causal_lens",
    "restore_order",
    "rope_quantize",
    "select_topk",
    "split_kv",
    "write_kv",
]
