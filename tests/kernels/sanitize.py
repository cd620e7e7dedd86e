"""Every kernel once on a small case, to run under compute-sanitizer: `compute-sanitizer python -m tests.kernels.sanitize`.

flashinfer's kernel is left out: it reads past an exact-size cos/sin table (its last thread, interleaved style).
"""

import sys
from typing import Any

import torch

from dsa_cp.kernels import custom_ops
from dsa_cp.numerics.rotation import cos_sin_table
from tests.support.kernel_cases import FORMATS, attend_case, index_case, normal


def rope_and_write() -> None:
    """Run `rope_quantize` in both styles and `write_kv` with every kind of row."""
    table = cos_sin_table(7, 64, 10000.0).cuda()
    for heads, is_neox in ((5, False), (16, True)):
        halves = (normal("cuda", 7, heads, 512), normal("cuda", 7, heads, 64), normal("cuda", 7, 512), normal("cuda", 7, 64))
        custom_ops.rope_quantize(*halves, torch.arange(7, device="cuda"), table, is_neox, 1.0, 1.0)
    for width, stride in ((576, 576), (1152, 1152), (656, 656), (132, 708), (576, 708), (37, 37)):
        pool = torch.empty(64, width, dtype=torch.uint8, device="cuda")
        rows = torch.randint(0, 256, (7, stride), dtype=torch.uint8, device="cuda")[:, :width]
        custom_ops.write_kv(pool, rows, torch.tensor([0, 63, -1, 5, 1, -1, 2], device="cuda"))


def quantize() -> None:
    """Run `quantize_rows` and the packing of indexer keys."""
    latent = normal("cuda", 9, 576)
    custom_ops.quantize_groups(latent[:, :512], latent[:, 512:], 128)
    custom_ops.quantize_groups(latent[:, :128], None, 128)


def attend() -> None:
    """Run Triton's attention over every row format and head count class, and what FlashMLA's needs around it."""
    from dsa_cp.triton_jit.dequantize_pages import dequantize_pages
    from dsa_cp.triton_jit.finish_attend import finish_attend

    for name in FORMATS:
        for heads in (4, 40, 64):
            dtype = torch.float8_e4m3fn if name == "fp8" else torch.bfloat16
            case = attend_case(name, 6, heads, 192, "cuda", dtype)
            q = case.q.view(torch.uint8) if name == "fp8" else case.q
            tables = (case.topk, case.causal_lens, case.request_of_row, case.page_table)
            group = 128 if name == "fp8_656" else 0
            custom_ops.attend(q, case.pool, *tables, 0.07, 1.0, 1.0, torch.float32, 512, group)
        if name != "bf16":
            keys = dequantize_pages(case.pool, case.page_table, 512, group)
            assert keys.shape == (9 * 64, 576)
    counts = torch.tensor([1, 0], dtype=torch.int32, device="cuda")
    for dtype in (torch.float32, torch.bfloat16):
        finish_attend(normal("cuda", 2, 64, 512), torch.zeros(2, 64, device="cuda"), counts, 0.5, dtype)


def choose() -> None:
    """Run the indexer's choice over both row formats, with rows of every length."""
    launch: Any = custom_ops.best_keys
    for name in ("index_fp8", "index_bf16"):
        case = index_case(9, 20, name, 64, "cuda", 16)
        launch(*case.arguments, 64, case.batch.max_seq_len, case.row_format.is_quantized)


if __name__ == "__main__":
    rope_and_write()
    choose()
    quantize()
    attend()
    torch.cuda.synchronize()
    sys.stdout.write("every kernel ran\n")
