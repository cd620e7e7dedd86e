import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.codes import TraceError
from dsa_cp.demo.trace import BLOCK_TOKENS, TraceRequest, default_trace, num_blocks, read_trace

GOOD = {"timestamp": 7, "input_length": 513, "output_length": 2, "hash_ids": [0, 9]}
FIELDS = "timestamp, input_length, output_length, hash_ids"


def written(folder: Path, *lines: str) -> Path:
    path = folder / "t.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def refusal(path: Path, limit: int | None = None) -> str:
    """Return the message of the refusal, with the folder cut off the path."""
    with pytest.raises(TraceError) as caught:
        read_trace(path, limit)
    assert caught.value.code == "DSA601"
    assert caught.value.facts == ()
    return caught.value.headline.replace(f"{path.parent}/", "")


def test_a_line_becomes_a_request(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(GOOD))
    assert read_trace(path) == (TraceRequest(timestamp=7, input_length=513, output_length=2, hash_ids=(0, 9)),)


def test_unknown_fields_are_accepted(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(GOOD | {"session": "x", "priority": 0.5}))
    assert read_trace(path)[0].hash_ids == (0, 9)


def test_timestamps_may_fall(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(GOOD), json.dumps(GOOD | {"timestamp": 3}))
    assert [request.timestamp for request in read_trace(path)] == [7, 3]


def test_blank_lines_are_skipped_and_still_counted(tmp_path: Path) -> None:
    path = written(tmp_path, "", json.dumps(GOOD), "  \t", json.dumps(GOOD), "{}")
    assert len(read_trace(path, limit=2)) == 2
    assert refusal(path) == ("t.jsonl:5: timestamp: is missing, expected an integer, in ms; fix it or remove the line")


def test_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b"\r\n\r\n" + json.dumps(GOOD).encode() + b"\r\n")
    assert len(read_trace(path)) == 2


def test_lines_after_the_limit_are_not_looked_at(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(GOOD), "not json")
    assert len(read_trace(path, limit=1)) == 1


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(tmp_path: Path, limit: int) -> None:
    with pytest.raises(ArgumentError) as caught:
        read_trace(written(tmp_path, json.dumps(GOOD)), limit)
    assert str(caught.value) == f"ArgumentError DSA602: limit is {limit}, expected at least 1"


def test_only_the_first_bad_line_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(GOOD), "[]", "nonsense")
    assert refusal(path) == f"t.jsonl:2: found [], expected a JSON object with the fields {FIELDS}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "is not JSON (Expecting property name enclosed in double quotes at column 2)"),
        ("nonsense", "is not JSON (Expecting value at column 1)"),
        ("{} {}", "is not JSON (Extra data at column 4)"),
        ("[" * 200_000, "is not JSON (nested too deeply)"),
        ('{"timestamp": ' + "9" * 5000 + "}", "is not JSON (a number has too many digits)"),
    ],
)
def test_a_line_that_is_not_json_is_refused(tmp_path: Path, line: str, message: str) -> None:
    assert refusal(written(tmp_path, line)) == f"t.jsonl:1: {message}, expected one JSON object a line; fix it"


@pytest.mark.parametrize(
    ("line", "shown"),
    [("3", "3"), ("null", "null"), ('"a"', '"a"'), ("NaN", "NaN"), ('"' + "x" * 99 + '"', '"' + "x" * 36 + "...")],
)
def test_a_line_that_is_no_object_is_refused(tmp_path: Path, line: str, shown: str) -> None:
    expected = f"t.jsonl:1: found {shown}, expected a JSON object with the fields {FIELDS}"
    assert refusal(written(tmp_path, line)) == expected


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("timestamp", "an integer, in ms"),
        ("input_length", "an integer of at least 1"),
        ("output_length", "an integer of at least 1"),
        ("hash_ids", "a list of integers of at least 0"),
    ],
)
def test_a_missing_field_is_named(tmp_path: Path, field: str, expected: str) -> None:
    line = json.dumps({name: value for name, value in GOOD.items() if name != field})
    message = f"t.jsonl:1: {field}: is missing, expected {expected}; fix it or remove the line"
    assert refusal(written(tmp_path, line)) == message


@pytest.mark.parametrize(
    ("field", "literal", "expected"),
    [
        ("timestamp", "1.5", "an integer, in ms"),
        ("timestamp", "NaN", "an integer, in ms"),
        ("timestamp", "true", "an integer, in ms"),
        ("input_length", "0", "an integer of at least 1"),
        ("input_length", "-5", "an integer of at least 1"),
        ("input_length", '"513"', "an integer of at least 1"),
        ("input_length", "513.0", "an integer of at least 1"),
        ("input_length", "true", "an integer of at least 1"),
        ("input_length", "null", "an integer of at least 1"),
        ("input_length", "NaN", "an integer of at least 1"),
        ("input_length", "-Infinity", "an integer of at least 1"),
        ("output_length", "0", "an integer of at least 1"),
        ("output_length", "-1", "an integer of at least 1"),
        ("output_length", "Infinity", "an integer of at least 1"),
        ("hash_ids", "4", "a list of integers of at least 0"),
        ("hash_ids", '"01"', "a list of integers of at least 0"),
        ("hash_ids", '{"a": 1}', "a list of integers of at least 0"),
        ("hash_ids", "null", "a list of integers of at least 0"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(tmp_path: Path, field: str, literal: str, expected: str) -> None:
    line = json.dumps(GOOD | {field: "@"}).replace('"@"', literal)
    message = f"t.jsonl:1: {field}: found {literal}, expected {expected}; fix it or remove the line"
    assert refusal(written(tmp_path, line)) == message


@pytest.mark.parametrize("literal", ["-1", "true", "1.0", '"3"', "NaN", "[4]"])
def test_a_wrong_hash_id_is_named_with_its_index(tmp_path: Path, literal: str) -> None:
    line = json.dumps(GOOD | {"hash_ids": [0, "@"]}).replace('"@"', literal)
    message = f"t.jsonl:1: hash_ids[1]: found {literal}, expected an integer of at least 0; fix it or remove the line"
    assert refusal(written(tmp_path, line)) == message


@pytest.mark.parametrize(("length", "wanted"), [(1, 1), (512, 1), (1024, 2), (1025, 3)])
def test_hash_ids_that_contradict_the_length_are_refused(tmp_path: Path, length: int, wanted: int) -> None:
    ids = list(range(wanted + 1))
    line = json.dumps(GOOD | {"input_length": length, "hash_ids": ids})
    assert refusal(written(tmp_path, line)) == (
        f"t.jsonl:1: hash_ids: found {wanted + 1} ids, expected {wanted}, one per 512 tokens of "
        f"input_length {length}; fix it or remove the line"
    )


def test_nan_in_an_unknown_field_is_refused(tmp_path: Path) -> None:
    line = json.dumps(GOOD | {"score": float("nan")})
    message = "t.jsonl:1: is not JSON (NaN is no JSON number); fix it or remove the line"
    assert refusal(written(tmp_path, line)) == message


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_requests_is_refused(tmp_path: Path, text: str) -> None:
    message = "t.jsonl: holds no request, expected at least one JSON line; check the path"
    assert refusal(written(tmp_path, text)) == message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    message = "no.jsonl: cannot be read (No such file or directory), expected a file of JSON lines; check the path"
    assert refusal(tmp_path / "no.jsonl") == message


def test_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    message = "d: cannot be read (Is a directory), expected a file of JSON lines; check the path"
    assert refusal(tmp_path / "d") == message


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # file modes do not hold root back
    message = "t.jsonl: cannot be read (Permission denied), expected a file of JSON lines; check the path"
    assert refusal(tmp_path / "t.jsonl") == message


def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b'\n{"a": "\xff"}\n')
    assert refusal(path) == "t.jsonl:2: byte 8 of the line is not UTF-8; save the file as UTF-8"


def test_the_default_trace_is_the_first_64_requests_of_the_conversation_trace() -> None:
    requests = default_trace()
    assert len(requests) == 64
    assert requests[0] == TraceRequest(0, 6758, 500, tuple(range(14)))
    assert [request.input_length for request in requests[:4]] == [6758, 7322, 7236, 2290]
    assert max(request.input_length for request in requests) == 87169
    assert min(request.input_length for request in requests) == 898
    assert sum(request.input_length for request in requests) == 779989


@given(st.lists(st.tuples(st.integers(1, 2000), st.integers(1, 99)), min_size=1, max_size=5))
def test_written_requests_are_read_back(tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[int, int]]) -> None:
    requests = tuple(
        TraceRequest(time, length, output, tuple(range(num_blocks(length)))) for time, (length, output) in enumerate(sizes)
    )
    path = written(tmp_path_factory.mktemp("trace"), *(json.dumps(vars(request)) for request in requests))
    assert read_trace(path) == requests
    assert all(0 <= len(request.hash_ids) * BLOCK_TOKENS - request.input_length < BLOCK_TOKENS for request in requests)
