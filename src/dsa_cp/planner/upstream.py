"""What sglang 0.5.15 and 0.5.23 decide for the same options, written down from their sources: predicates, not code.

Provenance, per version (paths under `sglang/srt`):

- fuse RoPE, both: models/deepseek_common/attention_forward_methods/forward_mla.py `_fuse_rope_for_trtllm_mla`: the prefill
  *or* the decode backend is trtllm, and the pool is e4m3. Which of the two runs is not asked.
- defer the gather: same file, 0.5.15 `_should_defer_dsa_cp_kv_gather`, 0.5.23 `prepare_kv_for_attention`.
- skip RoPE for aiter's fused kernel: `_skip_rope_for_dsa_tilelang_fused`, 0.5.15 same file, 0.5.23 forward_mla_rocm.py: on
  gfx95, where either backend is tilelang.
- width of pool rows: `calculate_mla_kv_cache_dim`, 0.5.15 model_executor/model_runner_kv_cache_mixin.py, 0.5.23
  mem_cache/kv_cache_configurator.py.
- refusals, 0.5.23: arg_groups/parallel_hook.py (zigzag for DeepSeek-V3.2, CP on HIP), arg_groups/overrides.py (tilelang fp8
  on CUDA in one phase only), arg_groups/kv_shard_hook.py (sharded pool).
- gather of fp8 rows: 0.5.15 layers/attention/dsa_backend.py `_all_gather_dsa_trtllm_fp8_kv`, both layouts; 0.5.23 layers/cp,
  interleave only.
- quantise 656-byte rows, both: mem_cache/memory_pool.py `set_mla_kv_buffer`, which stands behind the gather.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from dsa_cp.planner.backends import CAPABILITIES, Capability
from dsa_cp.planner.options import PlanOptions

FUSING_BACKENDS = frozenset({"trtllm"})
ROPE_SKIPPING_BACKENDS = frozenset({"tilelang"})
RAW_FP8_ON_HIP = frozenset({"tilelang", "aiter"})
KNOWN_BACKENDS = frozenset({"trtllm", "flashmla_sparse", "flashmla_kv", "tilelang", "aiter", "fa3"})
KNOWN_LAYOUTS = frozenset({"zigzag", "interleave"})


@dataclass(frozen=True)
class UpstreamDecision:
    """What one version does.

    Attributes:
        outcome: `placed`; `refused` at start-up; `broken`: it runs, and crashes or computes something else; `absent`: it has
            no such backend, layout or pool.
        why: the predicate that decides, or what goes wrong.
        source: where that stands, under `sglang/srt`.
        placement: where K is rotated, quantised and gathered, in the planner's words; empty unless placed.
        row_format: row format of its pool; empty unless placed.
        wire_bytes: bytes of a token in the collective.
        notes: what is wrong beside the placement.
    """

    outcome: Literal["placed", "refused", "broken", "absent"]
    why: str
    source: str
    placement: str = ""
    row_format: str = ""
    wire_bytes: int = 0
    notes: tuple[str, ...] = ()


def fuses_rope(prefill: str, decode: str, *, is_e4m3: bool) -> bool:
    """Return upstream's `_fuse_rope_for_trtllm_mla`: either backend decides, whichever runs."""
    return bool(FUSING_BACKENDS & {prefill, decode}) and is_e4m3


def defers_gather(*, dsa_prefill_cp: bool, fuse_rope: bool) -> bool:
    """Return upstream's `_should_defer_dsa_cp_kv_gather`."""
    return dsa_prefill_cp and fuse_rope


def is_hip(options: PlanOptions) -> bool:
    """Whether the device is AMD's; where it is not given, whether one of the backends runs on no other."""
    known = [CAPABILITIES[name].devices.value for name in _backends(options) if name in CAPABILITIES]
    devices = [(options.device,)] if options.device else [listed for listed in known if listed]
    return any(all(device.startswith("gfx") for device in listed) for listed in devices)


def _backends(options: PlanOptions) -> set[str]:
    return {options.prefill_backend, options.decode_backend}


def pool_format_0_5_15(options: PlanOptions) -> str:
    """Return the row format of 0.5.15's pool for the dtype asked for: flat e4m3 rows wherever trtllm is one of the two."""
    if options.kv_format == "bf16":
        return "bf16"
    is_flat = FUSING_BACKENDS & _backends(options) or (is_hip(options) and RAW_FP8_ON_HIP & _backends(options))
    return "fp8" if is_flat else "fp8_656"


def pool_format_0_5_23(options: PlanOptions) -> str:
    """Return the row format of 0.5.23's pool: as 0.5.15, and flat rows where both backends are tilelang on CUDA."""
    is_tilelang = options.kv_format != "bf16" and _backends(options) == ROPE_SKIPPING_BACKENDS
    return "fp8" if is_tilelang else pool_format_0_5_15(options)


def absent(options: PlanOptions) -> str:
    """Return what neither version has, an empty text where they have all."""
    missing = sorted(_backends(options) - KNOWN_BACKENDS)
    if missing:
        return f"it has no backend {missing[0]}"
    return "" if options.layout in KNOWN_LAYOUTS else f"it has no layout {options.layout}"


def refused_0_5_15(options: PlanOptions) -> str:
    """Return what 0.5.15 refuses at start-up: none of these options, but it has no sharded pool."""
    return "it has no sharded pool" if options.pool == "sharded" else ""


def refused_0_5_23(options: PlanOptions) -> str:
    """Return what 0.5.23 refuses at start-up, an empty text where it starts."""
    is_cp = options.cp_size > 1
    if is_cp and is_hip(options):
        return "prefill CP on HIP is for DeepSeek-V4 only"
    if is_cp and options.layout == "zigzag":
        return "prefill CP of DeepSeek-V3.2 does not support zigzag; other models fail at the first fp8 gather"
    is_mixed = bool(_backends(options) & ROPE_SKIPPING_BACKENDS) and _backends(options) != ROPE_SKIPPING_BACKENDS
    if options.kv_format != "bf16" and is_mixed and not is_hip(options):
        return "tilelang with an fp8 pool must be both backends on CUDA"
    if options.pool == "sharded" and (_backends(options) != FUSING_BACKENDS or options.kv_format == "bf16" or not is_cp):
        return "a sharded pool needs interleave CP, trtllm in both phases and an fp8 pool"
    return ""


_MLA = "models/deepseek_common/attention_forward_methods"
_FUSE = f"{_MLA}/forward_mla.py `_fuse_rope_for_trtllm_mla`"


@dataclass(frozen=True)
class Version:
    """One version's rules.

    Attributes:
        refused: what it refuses at start-up.
        pool_format: the row format of its pool.
        refused_source: where the refusals are.
        pool_source: where the width of pool rows is.
        defer_source: where the gather is deferred.
        not_read_yet: pairs of backend and row format that its backends do not read yet.
    """

    refused: Callable[[PlanOptions], str]
    pool_format: Callable[[PlanOptions], str]
    refused_source: str
    pool_source: str
    defer_source: str
    not_read_yet: frozenset[tuple[str, str]] = frozenset()


VERSIONS: dict[str, Version] = {
    "0.5.15": Version(
        refused_0_5_15,
        pool_format_0_5_15,
        "no option of that kind",
        "model_executor/model_runner_kv_cache_mixin.py `calculate_mla_kv_cache_dim`",
        f"{_FUSE}, `_should_defer_dsa_cp_kv_gather`",
        frozenset({("tilelang", "fp8")}),
    ),
    "0.5.23": Version(
        refused_0_5_23,
        pool_format_0_5_23,
        "arg_groups: parallel_hook.py, overrides.py, kv_shard_hook.py",
        "mem_cache/kv_cache_configurator.py `calculate_mla_kv_cache_dim`",
        f"{_FUSE}, `prepare_kv_for_attention`",
    ),
}


def decide(version: str, options: PlanOptions, known: Mapping[str, Capability] = CAPABILITIES) -> UpstreamDecision:
    """Return what a version of sglang decides for options.

    Args:
        version: `0.5.15` or `0.5.23`.
        options: the options; `fp8` and `fp8_656` are both its `--kv-cache-dtype fp8_e4m3`.
        known: capabilities, to see whether a backend reads what the version gives it.
    """
    rules = VERSIONS[version]
    missing, refusal = absent(options), rules.refused(options)
    if missing:
        return UpstreamDecision("absent", missing, "arg_groups/choices.py, server_args.py: choices of the options")
    if refusal:
        return UpstreamDecision("refused", refusal, rules.refused_source)
    row_format = rules.pool_format(options)
    wrong = _wrong_rotation(options)
    if wrong:
        return UpstreamDecision("broken", wrong, rules.defer_source)
    for name, phase in ((options.prefill_backend, "prefill"), (options.decode_backend, "decode")):
        if known[name].reading(row_format, phase) is None or (name, row_format) in rules.not_read_yet:
            why = f"the {phase} backend is given {row_format} rows and does not read them"
            return UpstreamDecision("broken", why, rules.pool_source)
    return _placed(options, row_format, rules)


def _wrong_rotation(options: PlanOptions) -> str:
    """Return how K comes to be rotated wrongly or not at all, an empty text where it does not."""
    if _fuses(options) and options.backend not in FUSING_BACKENDS:
        return "RoPE is left to trtllm, and the other backend runs: K is stored raw, under CP ungathered"
    if (options.device or "").startswith("gfx95") and ROPE_SKIPPING_BACKENDS & _backends(options) and options.ranks > 1:
        return "K is gathered before the fused cache write, which rotates it with this rank's positions"
    return ""


def _fuses(options: PlanOptions) -> bool:
    return fuses_rope(options.prefill_backend, options.decode_backend, is_e4m3=options.kv_format != "bf16")


def _placed(options: PlanOptions, row_format: str, rules: Version) -> UpstreamDecision:
    """Return where K goes, once all that is asked for exists and is read."""
    notes = _scale_notes(options, row_format)
    if options.ranks > 1:
        notes += ("the gather restores the order in a pass over all rows of its own; here the slots are permuted",)
    if _fuses(options):
        defers = defers_gather(dsa_prefill_cp=options.ranks > 1, fuse_rope=True)
        why = "dsa_prefill_cp and fuse_rope" if defers else "fuse_rope"
        return UpstreamDecision("placed", why, rules.defer_source, "rope_quantize_gather", row_format, 576, notes)
    placement = {"bf16": "rope_gather", "fp8_656": "rope_gather_quantize_rows", "fp8": "rope_gather_cast"}[row_format]
    why = "not fuse_rope: RoPE in the model, then the gather, then the cache write"
    return UpstreamDecision("placed", why, rules.defer_source, placement, row_format, 1152, notes)


def _scale_notes(options: PlanOptions, row_format: str) -> tuple[str, ...]:
    """Return what is wrong with scales: trtllm's logits are multiplied by k_scale whatever the pool holds (B21)."""
    if options.backend not in FUSING_BACKENDS:
        return ()
    if row_format == "bf16":
        return ("logits are multiplied by the checkpoint's k_scale although the pool is bf16",)
    return ("K is quantised at scale 1 and read at the checkpoint's k_scale",)
