"""The lock: the committed one is that of the contracts, and what is no lock is refused in a line."""

import io
import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from dsa_contracts.core.errors import ArgumentError
from dsa_cp.tools.review.contract_facts import contract_facts
from dsa_cp.tools.review.diff import compare
from dsa_cp.tools.review.lock import lock_text, parse_lock, read_lock
from dsa_cp.tools.stage_table import ROOT
from dsa_cp.tools.whole_files import read_text, write_text


def test_the_committed_lock_is_that_of_the_contracts() -> None:
    lock = ROOT / "contracts.lock.json"
    assert [change.line for change in compare(read_lock(lock), contract_facts())] == []
    assert lock.read_text(encoding="utf-8") == lock_text(contract_facts())


def test_a_lock_is_read_as_it_was_written() -> None:
    text = lock_text(contract_facts())
    assert parse_lock(text, "lock") == contract_facts()
    assert text == lock_text(parse_lock(text, "lock"))
    assert text.isascii()


def edited(**changes: object) -> str:
    return json.dumps({**json.loads(lock_text(contract_facts())), **changes})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lock is no JSON: Expecting value, line 1 column 1"),
        ('{"schema": 1,', "lock is no JSON: Expecting property name enclosed in double quotes, line 1 column 14"),
        ("[1]", "lock is no lock of contracts: it has no schema number"),
        ('{"schema": "1"}', "lock is no lock of contracts: it has no schema number"),
        ('{"schema": true}', "lock is no lock of contracts: it has no schema number"),
        ('{"schema": 2}', "lock is of a newer version, schema 2; this dsa-cp reads schema 1: update dsa-cp"),
        (
            '{"schema": 0}',
            "lock is of an older version, schema 0; this dsa-cp reads schema 1: write it again with --write-lock",
        ),
        ('{"schema": 1}', "lock is no lock of contracts: stages: field required"),
        ("[" * 100_000, "lock is no lock: it is nested too deeply"),
    ],
)
def test_what_is_no_lock_is_refused(text: str, message: str) -> None:
    with pytest.raises(ArgumentError) as error:
        parse_lock(text, "lock")
    assert error.value.headline == message


def test_a_wrong_or_unknown_field_is_named() -> None:
    for text, message in (
        (edited(codes={"DSA101": 3}), "lock is no lock of contracts: codes.DSA101: input should be a valid string"),
        (edited(extra=1), "lock is no lock of contracts: extra: extra inputs are not permitted"),
    ):
        with pytest.raises(ArgumentError) as error:
            parse_lock(text, "lock")
        assert error.value.headline == message


def test_a_lock_can_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(lock_text(contract_facts()).encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert read_lock(Path("-")) == contract_facts()


def test_a_file_is_written_as_a_whole_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    path.write_text("old")
    path.chmod(0o640)
    write_text(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_that_cannot_be_written_or_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"ab\xff")
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: write_text(tmp_path, "x"), f"{tmp_path} is a folder; name a file in it"),
        (
            lambda: write_text(tmp_path / "no" / "file", "x"),
            f"{tmp_path / 'no' / 'file'} cannot be written: no such file or directory",
        ),
        (
            lambda: write_text(tmp_path / "binary" / "file", "x"),
            f"{tmp_path / 'binary' / 'file'} cannot be written: not a directory",
        ),
        (lambda: read_text(tmp_path / "no"), f"{tmp_path / 'no'} cannot be read: no such file or directory"),
        (lambda: read_text(tmp_path), f"{tmp_path} cannot be read: is a directory"),
        (lambda: read_text(tmp_path / "binary"), f"{tmp_path / 'binary'} cannot be read: byte 2 is no UTF-8 text"),
    ]
    for call, message in cases:
        with pytest.raises(ArgumentError) as error:
            call()
        assert error.value.headline == message
