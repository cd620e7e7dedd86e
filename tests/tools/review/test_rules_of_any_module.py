"""The rules that also speak of other people's modules: contracts, stages, names and sizes."""

from pathlib import Path

import pytest

from dsa_contracts.core.errors import ArgumentError
from dsa_cp.tools.review.rules import RULES, check_paths
from tests.support.houses import STAGE, STUB, edited, lines

HOUSE_ONLY = ("REV001", "REV003", "REV006", "REV007", "REV011", "REV012", "REV016", "REV017")


def found(folder: Path, text: str, name: str = "plugin.py") -> list[str]:
    """What the rules say of one module that stands in no house, its path left out."""
    (folder / name).write_text(text, encoding="utf-8")
    return [line.partition(":")[2] for line in lines(folder)]


def test_rules_of_the_house_are_not_applied_to_other_modules_and_are_named(tmp_path: Path) -> None:
    (tmp_path / "shift_v2.py").write_text(STUB)
    report = check_paths([tmp_path])
    assert (report.findings, report.files, report.skipped) == ((), 1, HOUSE_ONLY)


def test_codes_of_rules_are_unique_and_rising() -> None:
    assert [rule.code for rule in RULES] == sorted({rule.code for rule in RULES})
    assert tuple(rule.code for rule in RULES if rule.needs_house) == HOUSE_ONLY


@pytest.mark.parametrize("name", ["utils.py", "kv_utils.py", "util.py", "utils_of_rows.py"])
def test_nothing_is_called_utils(tmp_path: Path, name: str) -> None:
    text = f"1:1 REV004 {name.removesuffix('.py')} says nothing of what is in it; name it after that"
    assert found(tmp_path, '"""Any."""\n', name) == [text]
    assert found(tmp_path, '"""Any."""\n', "futile.py") == [text]


def test_a_file_that_is_no_python_is_a_finding(tmp_path: Path) -> None:
    assert found(tmp_path, "def f(:\n") == ["1:7 REV000 no Python: invalid syntax"]
    assert found(tmp_path, "x = 1\0") == ["1:1 REV000 no Python: source code string cannot contain null bytes"]
    assert found(tmp_path, "x = '\\d'\n") == []


BRANCH = edited(
    STUB,
    ('        StageInputError: DSA102 to DSA104, DSA112.\n    """\n', '        StageInputError: DSA112.\n    """\n    {}\n'),
)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("return x if backend else x", "backend"),
        ("return x if batch.backend_name else x", "backend_name"),
        ("return x if name == 'trtllm' else x", "'trtllm'"),
        ("return x if name == 'other' else x", ""),
    ],
)
def test_a_contract_does_not_branch_on_a_backend(tmp_path: Path, line: str, name: str) -> None:
    text = f"22:17 REV002 a contract branches on {name}; what a backend can do is a capability"
    assert found(tmp_path, BRANCH.format(line)) == ([text] if name else [])


def test_a_module_without_contracts_may_branch_on_a_backend(tmp_path: Path) -> None:
    assert found(tmp_path, "x = 1 if backend == 'trtllm' else 2\n") == []


BODY = ("    return brand(x + scale)\n", "    {}\n    return brand(x + scale)\n")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("rank = get_rank()", "shift reads get_rank(); make what it gives a parameter"),
        ("rank = dist.get_rank(group)", "shift reads dist.get_rank(); make what it gives a parameter"),
        ("flag = os.environ['X']", "shift reads os.environ; make the value a parameter"),
        ("flag = os.getenv('X')", "shift reads os.getenv(); make what it gives a parameter"),
        ("s = torch.cuda.current_stream()", "shift reads torch.cuda.current_stream(); make what it gives a parameter"),
        ("group = get_group(batch)", ""),
        ("parts = get_args(int)", ""),
        ("rank = batch.get_rank()", ""),
        ("held = {}; held.get('x')", ""),
    ],
)
def test_a_stage_reads_no_getter(tmp_path: Path, line: str, text: str) -> None:
    where = 5 + (line.find("=") + 2 if "=" in line else 0)
    expected = [f"18:{where} REV005 {text}"] if text else []
    assert found(tmp_path, edited(STAGE, (BODY[0], BODY[1].replace("{}", line)))) == expected


def test_a_stage_keeps_nothing_in_its_module(tmp_path: Path) -> None:
    state = ("\n\n@stage", "\n\nSEEN = []\nTABLE = {1: 2}\n\n\n@stage")
    text = edited(STAGE, state, (BODY[0], BODY[1].replace("{}", "SEEN.append(TABLE[1])")))
    assert found(tmp_path, text) == ["22:5 REV005 shift uses SEEN, which this module changes; make it a parameter"]


def test_a_stage_changes_no_global(tmp_path: Path) -> None:
    state = ("\n\n@stage", "\n\ncount = 0\n\n\n@stage")
    text = edited(STAGE, state, (BODY[0], "    global count\n    count = 1\n    return brand(x + scale)\n"))
    assert found(tmp_path, text) == ["21:5 REV005 shift changes global count"]


def test_annotations_are_not_postponed(tmp_path: Path) -> None:
    text = edited(
        STAGE, ('"""Reference of `shift`."""\n', '"""Reference of `shift`."""\n\nfrom __future__ import annotations\n')
    )
    assert found(tmp_path, text) == [
        "3:1 REV008 annotations are postponed here; a name that is imported for the checker alone becomes Any"
    ]
    assert found(tmp_path, "from __future__ import annotations\n") == []


def test_every_annotation_is_there_and_resolves(tmp_path: Path) -> None:
    checker = (
        "from dsa_contracts.dsa.dims import KvLoraRank\n",
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from dsa_contracts.dsa.dims import KvLoraRank\n",
    )
    text = edited(STUB, checker, ("    scale: float,\n", "    scale,\n"), ("batch: CpBatch[L]", "batch: 'Batch[L]'"))
    assert found(tmp_path, text) == [
        "16:50 REV009 shift: KvLoraRank in an annotation is imported under TYPE_CHECKING alone",
        "17:5 REV009 shift: scale has no annotation",
        "18:12 REV009 shift: Batch in an annotation is not defined",
    ]


ONCE = ("    scale: float,\n", "    scale: float,\n    mask: Ten[Local[L], Plain, BF16, Contiguous, N, {}],\n")


@pytest.mark.parametrize(
    ("dim", "is_found"),
    [("NumIndexHeads", True), ("IndexTopk", True), ("MaxPages", True), ("KvLoraRank", False), ("Nnz", False)],
)
def test_a_dim_that_stands_once_is_found(tmp_path: Path, dim: str, is_found: bool) -> None:
    text = edited(STUB, (ONCE[0], ONCE[1].replace("{}", dim)), ("import KvLoraRank", f"import KvLoraRank, {dim}"))
    line = f"15:53 REV010 shift: dim {dim} of mask stands once; nothing says how large it is"
    assert found(tmp_path, text) == ([line] if is_found else [])


NAMED = "\n\nMask = Ten[Local[L], Plain, BF16, Contiguous, N, {}]\nAnyMask = Ten[Local[L], Plain, BF16, Contiguous, N, *Ds]\n"


@pytest.mark.parametrize(
    ("hint", "of_alias", "found_once"),
    [
        ("Mask[L, N]", "MaxPages", "17:11 MaxPages"),
        ("Mask[L, N] | None", "MaxPages", "17:11 MaxPages"),
        ("Mask[L, N]", "KvLoraRank", ""),
        ("AnyMask[L, N, MaxPages]", "KvLoraRank", "17:25 MaxPages"),
        ("AnyMask[L, N, KvLoraRank]", "KvLoraRank", ""),
        ("IndexWeights[L, N]", "KvLoraRank", "17:11 NumIndexHeads"),
    ],
)
def test_a_dim_that_stands_once_is_found_also_behind_an_alias(
    tmp_path: Path, hint: str, of_alias: str, found_once: str
) -> None:
    """`Mask` and `AnyMask` are aliases of these files, `IndexWeights` is one of the vocabulary."""
    (tmp_path / "names.py").write_text(NAMED.replace("{}", of_alias))
    text = edited(STUB, ("    scale: float,\n", f"    scale: float,\n    mask: {hint},\n"))
    imports = "from names import AnyMask, Mask\nfrom dsa_contracts.dsa.aliases import IndexWeights\n"
    text = edited(text, ("from dsa_contracts.dsa.dims import", f"{imports}from dsa_contracts.dsa.dims import MaxPages,"))
    place, _, dim = found_once.partition(" ")
    line = f"{place} REV010 shift: dim {dim} of mask stands once; nothing says how large it is"
    assert found(tmp_path, text) == ([line] if found_once else [])


def test_an_invariant_that_names_the_parameter_ties_its_dims(tmp_path: Path) -> None:
    text = edited(STUB, (ONCE[0], ONCE[1].replace("{}", "MaxPages")), ("import KvLoraRank", "import KvLoraRank, MaxPages"))
    assert found(tmp_path, text.replace('scale_is_positive("scale")', 'covers("mask")')) == []


def test_another_stage_ties_a_dim_that_a_batch_binds(tmp_path: Path) -> None:
    text = edited(
        STUB, (ONCE[0], ONCE[1].replace("{}", "NumIndexHeads")), ("import KvLoraRank", "import KvLoraRank, NumIndexHeads")
    )
    (tmp_path / "other.py").write_text(text.replace("def shift", "def turn"))
    assert found(tmp_path, text) == []


def test_a_stub_lists_the_codes_of_its_invariants_and_no_others(tmp_path: Path) -> None:
    own = "\n\ndef scale_is_positive(name):\n    return name, 'DSA112'\n"
    text = edited(
        STUB,
        ("DSA102 to DSA104, DSA112", "DSA102, DSA199"),
        ("from dsa_contracts.dsa.invariants import scale_is_positive\n", ""),
    )
    assert found(tmp_path, text + own) == [
        "11:1 REV015 shift: Raises does not list DSA112, which an invariant of it has",
        "11:1 REV015 shift: there is no code DSA199",
    ]


def test_long_functions_are_found_and_long_modules_are_not(tmp_path: Path) -> None:
    signature = 'def f(\n    a,\n    b,\n):\n    """Say.\n\n    More.\n    """\n'
    assert found(tmp_path, signature + "    a = 1\n" * 40) == []
    assert found(tmp_path, signature + "    a = 1\n" * 41) == ["1:1 REV014 f has 41 lines in its body; split what is over 40"]
    assert found(tmp_path, "a = 1\n" * 251) == []


def test_tests_may_have_toy_contracts(tmp_path: Path) -> None:
    text = edited(STUB, ("    scale: float,\n", "    scale,\n"))
    assert found(tmp_path, text, "test_toys.py") == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", "{}/nowhere does not exist"),
        ("notes.txt", "{}/notes.txt is no Python file"),
        ("bad.py", "{}/bad.py cannot be read: no UTF-8 text"),
    ],
)
def test_what_cannot_be_reviewed_is_one_line(tmp_path: Path, path: str, message: str) -> None:
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "bad.py").write_bytes(b"\xff")
    with pytest.raises(ArgumentError) as error:
        check_paths([tmp_path / path])
    assert error.value.headline == message.format(tmp_path)
