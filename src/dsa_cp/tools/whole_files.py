"""Files in and out: a file is written beside the target and renamed; each failure is one line that names the file."""

import os
import sys
import tempfile
from pathlib import Path

from dsa_contracts.core.errors import ArgumentError


def write_text(path: Path, text: str) -> None:
    """Write a text as a whole or not at all; see `write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file as a whole or not at all.

    Raises:
        ArgumentError: DSA602, the path is a folder or cannot be written.
    """
    if path.is_dir():
        raise ArgumentError(f"{path} is a folder; name a file in it")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise ArgumentError(f"{path} cannot be written: {_reason(error)}") from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(name).chmod(_mode_of(path))
        Path(name).replace(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise ArgumentError(f"{path} cannot be written: {_reason(error)}") from None


def make_folder(path: Path) -> None:
    """Make a folder and those above it; one that is there stays as it is.

    Raises:
        ArgumentError: DSA602, it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"{path} cannot be made a folder: {_reason(error)}") from None


def read_text(path: Path) -> str:
    """Return the text of a file, or of standard input where the path is `-`.

    Raises:
        ArgumentError: DSA602, there is no such file, it is a folder, or it is no UTF-8 text.
    """
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {_reason(error)}") from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{path} cannot be read: byte {error.start} is no UTF-8 text") from None


def _reason(error: OSError) -> str:
    """Return what the system said, without number and path."""
    return (error.strerror or type(error).__name__).lower()


def _mode_of(path: Path) -> int:
    """Return the permissions that a file has, or that a new one would get."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
