"""What a figure belongs to: machine, versions, commit and command."""

import importlib.metadata
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import torch

PACKAGES = ("torch", "triton", "jaxtyping", "beartype", "typeguard", "flashinfer-python", "sgl-flash-mla")


def run_facts() -> dict[str, object]:
    """Return the facts of this run as one record."""
    gpus = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
    return {
        "part": "run",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["dsa-cp", *sys.argv[1:]]),
        "commit": os.environ.get("DSA_CP_COMMIT") or _commit(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "gpus": gpus,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the checkout that this module is in, marked where files differ from it."""
    folder = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=folder, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
