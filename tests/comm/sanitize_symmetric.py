"""Push and pull on two GPUs with odd sizes, to run under a sanitizer:

compute-sanitizer --report-api-errors no --target-processes all python -m tests.comm.sanitize_symmetric
"""

import sys

from dsa_cp.comm.process import run_processes
from tests.support import symmetric_programs as targets

CASES: list[targets.Case] = [
    ("zigzag", [130, 1], None, False),
    ("vllm_zigzag", [1, 70], None, False),
    ("interleave", [7], None, True),
]
PATIENCE_S = 200.0
"""A sanitizer slows a kernel down a hundredfold."""


def main() -> int:
    """Run all cases both ways; 0 where every byte is the reference's."""
    wrong = 0
    for pushes in (True, False):
        ranks = run_processes(2, targets.differing_bytes_of_cases, CASES, pushes, 2, device="cuda", timeout_s=PATIENCE_S)
        wrong += sum(sum(rounds) for rank in ranks for rounds in rank.values())
        sys.stdout.write(f"{'push' if pushes else 'pull'}: {wrong} bytes differ\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
