"""One implementation a stage, under the contract of the same name in `dsa_contracts.stages`; runs on CPU and GPU."""

from dsa_cp.stages.all_gather_kv import all_gather_kv
from dsa_cp.stages.apply_rope import apply_rope
from dsa_cp.stages.attend import attend
from dsa_cp.stages.gather_write_kv import gather_write_kv
from dsa_cp.stages.gather_write_kv_and_index import gather_write_kv_and_index
from dsa_cp.stages.merge_q import merge_q
from dsa_cp.stages.pack_index_key import pack_index_key
from dsa_cp.stages.pack_kv import pack_kv
from dsa_cp.stages.quantize_rows import quantize_rows
from dsa_cp.stages.rebuild_positions import rebuild_positions
from dsa_cp.stages.reorder_causal_lens import reorder_causal_lens
from dsa_cp.stages.restore_order import restore_order
from dsa_cp.stages.rope_quantize import rope_quantize
from dsa_cp.stages.select_topk import select_topk
from dsa_cp.stages.split_kv import split_kv
from dsa_cp.stages.write_kv import write_kv

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
