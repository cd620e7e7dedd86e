#!/usr/bin/env bash
# What needs two GPUs besides the K tail: stages against their floors, the cells with each kernel set, all tests marked gpu.
# Usage: benchmarks/on_two_gpus.sh FOLDER    (the package, its dependencies and the kernels' libraries on PYTHONPATH)
set -u
out=${1:?folder for the results}

{ date -u +%F; nvidia-smi --query-gpu=name,driver_version --format=csv,noheader; python3 -c 'import torch, triton; print(torch.__version__, triton.__version__)'; } > "$out/machine.txt"
timeout 55 python3 -c 'import sys; from dsa_cp.cli import main; sys.exit(main())' bench --part stages --part check --out "$out/bench" > "$out/bench.txt" 2>&1
echo "bench: exit $?" | tee -a "$out/summary.txt"
timeout 160 python3 -m pytest -q -m gpu -p no:cacheprovider -p no:benchmark tests/kernels > "$out/kernel_tests.txt" 2>&1 &
for kernels in flash_mla triton; do
    timeout 75 python3 -c 'import sys; from dsa_cp.cli import main; sys.exit(main())' run --model deepseek-v3.2 --cp-size 2 --layers 5 \
        --batches 2 --ranks process --device cuda --kernels "$kernels" --json > "$out/cells-$kernels.jsonl" 2> "$out/cells-$kernels.err"
    echo "cells $kernels: exit $?" | tee -a "$out/summary.txt"
done
timeout 60 python3 -m pytest -q -m gpu -p no:cacheprovider tests/comm tests/bench > "$out/comm_tests.txt" 2>&1
echo "comm and bench tests: exit $?" | tee -a "$out/summary.txt"
wait
for log in "$out/kernel_tests.txt" "$out/comm_tests.txt"; do tail -n 3 "$log"; done
cat "$out"/cells-*.jsonl
for log in "$out"/cells-*.err; do tail -n 5 "$log"; done
