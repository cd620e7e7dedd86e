#!/usr/bin/env bash
# What needs two GPUs and is no benchmark: all tests marked gpu, the cells with Triton and FlashMLA, the sanitizer over what runs on two GPUs.
# Usage: benchmarks/on_two_gpus.sh FOLDER    (the package, its dependencies and the kernels' libraries on PYTHONPATH; about 9 minutes)
set -u
out=${1:?folder for the results}

report() { echo "$1: exit $2" | tee -a "$out/summary.txt"; }
cell() {
    timeout 80 python3 -m dsa_cp run --model deepseek-v3.2 --cp-size 2 --layers 5 --batches 2 \
        --ranks process --device cuda --kernels "$1" --comm "$2" "${@:3}" --json >> "$out/cells.jsonl" 2>> "$out/cells.err"
    report "cells, kernels $1, comm $2" $?
}

{ date -u +%F; nvidia-smi --query-gpu=name,driver_version --format=csv,noheader; uname -r; python3 -c 'import torch, triton; print(torch.__version__, triton.__version__)'; } > "$out/machine.txt"
timeout 170 python3 -m pytest -q -rs -m gpu -p no:cacheprovider -p no:benchmark tests/kernels > "$out/kernel_tests.txt" 2>&1 &
cell flash_mla collective
cell flash_mla symmetric --kv-format bf16 --kv-format fp8 --kv-format fp8_656
cell triton symmetric
cell triton collective
wait
timeout 150 python3 -m pytest -q -rs -m gpu -p no:cacheprovider -p no:benchmark tests/comm tests/tools/bench > "$out/comm_tests.txt" 2>&1
report "comm and bench tests" $?
for tool in memcheck racecheck; do
    timeout 75 compute-sanitizer --tool $tool --report-api-errors no --target-processes all python3 -m tests.comm.sanitize_symmetric > "$out/sanitize_symmetric_$tool.txt" 2>&1
    report "symmetric kernels under $tool" $?
done
for log in "$out"/kernel_tests.txt "$out"/comm_tests.txt "$out"/sanitize_*.txt "$out"/cells.err; do echo "== $(basename "$log")"; tail -n 4 "$log"; done
cat "$out/cells.jsonl"
