"""The path against the attention of transformers 5.24.0: chosen keys and latent outputs, on one and on four ranks.

`record_transformers.py` says how the numbers were made. The inputs are exact in bf16, and the recorded models round rotated
values to bf16 as our path does, so that what is left is the order of float32 sums. Each request with a prefix comes in two
chunks, so that the keys of its prefix were written by an earlier batch.
"""

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch, Layout, RopeStyle, checking_values
from dsa_cp.comm import run_ranks
from dsa_cp.layer.cache import declare_cache
from dsa_cp.layer.inputs import GlobalDraw, cos_sin_cache, shard_inputs
from dsa_cp.layer.kernel_sets import TorchKernels, observed
from dsa_cp.layer.models import ModelDims
from dsa_cp.layouts import Interleave, VllmZigzag, Zigzag, build_batch
from dsa_cp.planner import attention_layer, cache_formats, make_plan

DATA = Path(__file__).parent / "data"
RECORDS: dict[str, dict[str, Any]] = {path.stem: json.loads(path.read_text()) for path in sorted(DATA.glob("*.json"))}
STYLE_OF_INDEXER = {"deepseek_v32": RopeStyle.NEOX, "glm_moe_dsa": RopeStyle.INTERLEAVED}
PAGE_SIZE = 4
TOLERANCE = 3e-7
"""Absolute, for outputs of scale 1: four units in the last place of float32."""

each_family = pytest.mark.parametrize("family", STYLE_OF_INDEXER)


def model_of(family: str) -> ModelDims:
    record = RECORDS[family]
    return ModelDims(
        family,
        num_heads=record["heads"],
        kv_lora_rank=record["rank"],
        qk_rope_head_dim=record["rope"],
        qk_nope_head_dim=record["rank"],
        index_topk=record["topk"],
        num_index_heads=record["index_heads"],
        index_head_dim=record["index_dim"],
        index_rope_style=STYLE_OF_INDEXER[family],
    )


@dataclass(frozen=True)
class Chunk:
    """A batch as a scheduler forms it; requests without new tokens are not in it."""

    record: dict[str, Any]
    requests: list[int]
    extend_lens: list[int]
    prefix_lens: list[int]
    out_cache_loc: Tensor
    page_table: Tensor

    def recorded(self, name: str) -> list[Any]:
        """The recorded values of the batch's rows, in sequence order."""
        lens = zip(self.requests, self.extend_lens, self.prefix_lens, strict=True)
        return [row for at, new, cached in lens for row in self.record["requests"][at][name][cached : cached + new]]

    def bf16(self, name: str) -> Tensor:
        return torch.tensor(self.recorded(name), dtype=torch.int32).to(torch.int16).view(torch.bfloat16)

    def draw(self) -> GlobalDraw:
        latent = torch.cat([self.bf16("k_nope"), self.bf16("k_rope")], dim=-1)
        weights = torch.tensor(self.recorded("head_weights"))
        return GlobalDraw(self.bf16("q"), latent, self.bf16("q_index"), self.bf16("k_index"), weights)


def chunks_of(record: dict[str, Any]) -> list[Chunk]:
    """The prefixes, then the rest; the pages of all requests lie shuffled in the pool."""
    requests = record["requests"]
    width = -(-max(request["seq_len"] for request in requests) // PAGE_SIZE)
    names = list(range(width * len(requests)))
    random.Random(5).shuffle(names)
    prefixes = [(at, r["prefix_len"], 0) for at, r in enumerate(requests) if r["prefix_len"]]
    rest = [(at, r["seq_len"] - r["prefix_len"], r["prefix_len"]) for at, r in enumerate(requests)]
    chunks = []
    for lens in (prefixes, rest):
        pages = [names[at * width : (at + 1) * width] for at, _, _ in lens]
        places = [(row, place) for row, (_, new, cached) in enumerate(lens) for place in range(cached, cached + new)]
        slots = [pages[row][place // PAGE_SIZE] * PAGE_SIZE + place % PAGE_SIZE for row, place in places]
        at, extend, prefix = (list(column) for column in zip(*lens, strict=True))
        chunks.append(Chunk(record, at, extend, prefix, torch.tensor(slots), torch.tensor(pages, dtype=torch.int32)))
    return chunks


def layer(comm: Comm, layout: Layout, model: ModelDims) -> tuple[CpBatch[Layout], Tensor, Tensor]:
    """Run both chunks through one layer; returns the second batch with its top-k indices and its output."""
    plan = make_plan("flashmla_sparse", "bf16", layout=layout.name, cp_size=comm.size)
    chunks = chunks_of(RECORDS[model.name])
    num_pages = 3 * chunks[0].page_table.shape[1]
    formats = cache_formats(plan, model)
    kv, index = (
        torch.full((num_pages, PAGE_SIZE, each.row_bytes), 0xFF, dtype=torch.uint8) for each in vars(formats).values()
    )
    cache = declare_cache(formats, kv, index, 0)
    table = cos_sin_cache(model, 30, torch.device("cpu"))
    chosen: list[Tensor] = []

    def note(stage: str, args: object, result: object) -> None:
        if stage == "select_topk" and isinstance(result, Tensor):
            chosen.append(result)

    for chunk in chunks:
        batch = build_batch(
            layout,
            comm.size,
            comm.rank,
            chunk.extend_lens,
            chunk.prefix_lens,
            out_cache_loc=chunk.out_cache_loc,
            page_table=chunk.page_table,
            page_size=PAGE_SIZE,
        )
        made = attention_layer(batch, model, plan, comm, observed(TorchKernels, note), table=table)
        out = made(shard_inputs(chunk.draw(), model, made.setting.local, batch), cache, 0).out
    return batch, chosen[-1], out


def chosen_keys(topk: Tensor) -> list[list[int]]:
    return [[key for key in row if key >= 0] for row in topk.tolist()]


def errors_of_one_rank(model: ModelDims) -> tuple[int, float]:
    """How many rows choose other keys than the record, and the largest error of an output."""
    second = chunks_of(RECORDS[model.name])[1]
    ((_, topk, out),) = run_ranks(1, lambda comm: layer(comm, Interleave(), model))
    other = [ours != theirs for ours, theirs in zip(chosen_keys(topk), second.recorded("topk"), strict=True)]
    return sum(other), float((out - torch.tensor(second.recorded("out"))).abs().max())


@each_family
@pytest.mark.parametrize("cp_size", [1, 4])
@pytest.mark.parametrize("layout", [Zigzag(), Interleave(), VllmZigzag()], ids=lambda layout: layout.name)
def test_path_chooses_the_keys_of_transformers_and_gives_its_output(layout: Layout, cp_size: int, family: str) -> None:
    second = chunks_of(RECORDS[family])[1]
    keys, outputs = second.recorded("topk"), torch.tensor(second.recorded("out"))
    with checking_values():
        ranks = run_ranks(cp_size, lambda comm: layer(comm, layout, model_of(family)))
    for batch, topk, out in ranks:
        assert chosen_keys(topk) == [keys[row] for row in batch.local_rows.tolist()]
        assert float((out - outputs[batch.local_rows]).abs().max()) <= TOLERANCE


@each_family
def test_selection_matters_in_the_record(family: str) -> None:
    chosen = [keys for request in RECORDS[family]["requests"] for keys in request["topk"]]
    assert sum(len(keys) == 8 and keys != list(range(8)) for keys in chosen) >= 31
    assert sum(len(keys) < 8 for keys in chosen) == 7 + 5 + 7


@each_family
def test_cos_sin_table_is_that_of_transformers(family: str) -> None:
    ours = cos_sin_cache(model_of(family), 30, torch.device("cpu"))
    assert float((ours - torch.tensor(RECORDS[family]["cos_sin"])).abs().max()) < 2e-7


@each_family
@pytest.mark.parametrize(
    "wrong", [{"rope_style": RopeStyle.NEOX}, {"rope_theta": 20000.0}, {"qk_nope_head_dim": 12}], ids=lambda w: next(iter(w))
)
def test_a_wrong_model_fact_shows_in_the_output(wrong: dict[str, Any], family: str) -> None:
    _, error = errors_of_one_rank(replace(model_of(family), **wrong))
    assert error > 1e-3


@each_family
def test_a_wrong_rope_style_of_the_indexer_shows_in_the_chosen_keys(family: str) -> None:
    right = STYLE_OF_INDEXER[family]
    (wrong,) = (style for style in RopeStyle if style is not right)
    assert errors_of_one_rank(model_of(family))[0] == 0
    assert errors_of_one_rank(replace(model_of(family), index_rope_style=wrong))[0] > 5
