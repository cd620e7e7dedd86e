"""How the orders of the K tail are called in tables and plots."""

ORDER_NAMES = {
    "sglang": "sglang's order",
    "vllm": "vLLM's order",
    "nccl": "NCCL + permuted write",
    "pull": "symmetric pull",
    "push": "symmetric push",
}
