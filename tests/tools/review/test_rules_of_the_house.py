"""The rules that speak of the house's own folders: files, imports, the path, tests."""

from pathlib import Path

import pytest

from tests.support.houses import STAGE, STUB, TEST, build, edited, lines


def test_a_house_that_breaks_no_rule_has_no_findings(tmp_path: Path) -> None:
    assert lines(build(tmp_path)) == []


@pytest.mark.parametrize("folder", ["dsa_contracts", "src/dsa_cp"])
@pytest.mark.parametrize("name", ["shift_v2", "shift_fast", "shift_helpers"])
def test_a_second_file_of_a_stage_is_found(tmp_path: Path, folder: str, name: str) -> None:
    build(tmp_path)
    (tmp_path / folder / "stages" / f"{name}.py").write_text('"""More."""\n')
    assert f"{folder}/stages/{name}.py:1:1 REV001 {name}.py is a second file of stage shift; edit shift.py" in lines(tmp_path)


def test_a_second_file_is_found_outside_of_the_stages_by_its_suffix_alone(tmp_path: Path) -> None:
    build(tmp_path, src__dsa_cp__kernels__shift_old='"""Old."""\n', src__dsa_cp__kernels__shift_rows='"""Rows."""\n')
    assert lines(tmp_path) == [
        "src/dsa_cp/kernels/shift_old.py:1:1 REV001 shift_old.py is a second file of stage shift; edit shift.py"
    ]


def test_an_implementation_in_the_file_of_another_stage_is_found(tmp_path: Path) -> None:
    two = edited(
        STAGE, ('"""See the contract."""\n    return brand(x + scale)\n', '"""See the contract."""\n    return brand(x)\n')
    )
    second = '\n\n@stage(contracts.turn)\ndef turn(batch: CpBatch[L]) -> None:\n    """See."""\n'
    assert lines(build(tmp_path, src__dsa_cp__stages__shift=two + second)) == [
        "src/dsa_cp/stages/shift.py:22:1 REV001 turn is bound to stage turn, which has its file turn.py"
    ]


@pytest.mark.parametrize(
    ("missing", "line"),
    [
        (
            "tests__stages__test_shift",
            "dsa_contracts/stages/shift.py:1:1 REV011 stage shift has no tests/stages/test_shift.py",
        ),
        (
            "src__dsa_cp__stages__shift",
            "dsa_contracts/stages/shift.py:1:1 REV011 stage shift has no src/dsa_cp/stages/shift.py",
        ),
    ],
)
def test_a_stage_needs_its_three_files(tmp_path: Path, missing: str, line: str) -> None:
    other = {} if "tests" in missing else {"src__dsa_cp__stages__rotation": '"""A helper."""\n'}
    assert lines(build(tmp_path, **{missing: ""}, **other)) == [line]


def test_an_implementation_needs_a_contract(tmp_path: Path) -> None:
    turn = edited(STAGE, ("@stage(contracts.shift)", "@stage(contracts.turn)"), ("def shift(", "def turn("))
    assert lines(build(tmp_path, src__dsa_cp__stages__turn=turn)) == [
        "src/dsa_cp/stages/turn.py:1:1 REV011 stage turn has no dsa_contracts/stages/turn.py"
    ]


def test_files_that_hold_nothing_of_their_stage_are_found(tmp_path: Path) -> None:
    build(tmp_path, dsa_contracts__stages__shift='"""Empty."""\n', src__dsa_cp__stages__shift='"""Empty."""\n')
    assert lines(tmp_path) == [
        "dsa_contracts/stages/shift.py:1:1 REV011 no contract shift stands in shift.py",
        "src/dsa_cp/stages/shift.py:1:1 REV011 nothing in shift.py is bound to stage shift",
    ]


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("if plan.backend == 'x':\n    pass\n", "backend"),
        ("value = 1 if row_format.is_quantized else 2\n", "row_format"),
        ("rows = [row for row in rows if row == 'fp8_656']\n", "'fp8_656'"),
        ("while setting.placement:\n    pass\n", "placement"),
        ("match name:\n    case 'a':\n        pass\n", ""),
        ("match capability:\n    case 'a':\n        pass\n", "capability"),
        ("if name == 'trtllm':\n    pass\n", "'trtllm'"),
        ("if planet:\n    pass\n", ""),
    ],
)
def test_the_path_does_not_decide_again_what_the_plan_has_decided(tmp_path: Path, test: str, name: str) -> None:
    found = [line.partition(" ")[2] for line in lines(build(tmp_path, src__dsa_cp__layer__path=test))]
    text = f"REV003 path.py branches on {name}; the plan has decided that, and its route has the function"
    assert found == ([text] if name else [])


ORDER = (
    "imports run core <- dsa <- contracts <- layouts, comm <- kernels <- stages <- layer <- planner"
    " <- engines, demo <- tools <- cli"
)


@pytest.mark.parametrize(
    ("module", "statement", "imported"),
    [
        ("dsa_contracts.core.marks", "from dsa_contracts.dsa import dims", "dsa_contracts.dsa.dims"),
        ("dsa_contracts.dsa.layout", "import dsa_contracts.stages", "dsa_contracts.stages"),
        ("dsa_contracts.dsa.layout", "from dsa_cp.layouts import Zigzag", "dsa_cp.layouts.Zigzag"),
        ("dsa_cp.layouts.zigzag", "import dsa_cp.stages.shift", "dsa_cp.stages.shift"),
        ("dsa_cp.kernels.shift", "from dsa_cp.stages.shift import shift", "dsa_cp.stages.shift.shift"),
        ("dsa_cp.stages.shift", "from dsa_cp.layer import path", "dsa_cp.layer.path"),
        ("dsa_cp.layer.path", "import importlib\nimportlib.import_module('dsa_cp.cli')", "dsa_cp.cli"),
        ("dsa_cp.layer.path", "from dsa_cp.planner import choice", "dsa_cp.planner.choice"),
        ("dsa_cp.planner.search", "import dsa_cp.engines.sglang", "dsa_cp.engines.sglang"),
        ("dsa_cp.demo.run", "from dsa_cp.tools import bench", "dsa_cp.tools.bench"),
        ("dsa_cp.tools.review.page", "from dsa_cp.cli.output import print_line", "dsa_cp.cli.output.print_line"),
    ],
)
def test_imports_run_one_way(tmp_path: Path, module: str, statement: str, imported: str) -> None:
    name = module.replace(".", "__") if module.startswith("dsa_contracts") else f"src__{module.replace('.', '__')}"
    text = f"{STAGE}\n{statement}\n" if module == "dsa_cp.stages.shift" else f"{statement}\n"
    found = [line for line in lines(build(tmp_path, **{name: text})) if "REV006" in line]
    assert [line.partition(" ")[2] for line in found] == [f"REV006 {module} imports {imported}; {ORDER}"]


def test_imports_of_lower_layers_are_legal(tmp_path: Path) -> None:
    ours = "from dsa_contracts import stage\nfrom dsa_cp.layouts import Zigzag\nfrom dsa_cp import comm\n"
    text = f"{ours}import os\nimport torch\n"
    assert lines(build(tmp_path, src__dsa_cp__kernels__fast=text)) == []


def test_the_contracts_import_three_libraries(tmp_path: Path) -> None:
    text = "import os\nimport torch\nimport numpy as np\nfrom beartype.door import is_bearable\n"
    assert lines(build(tmp_path, dsa_contracts__bearing=text)) == [
        (
            "dsa_contracts/bearing.py:3:1 REV006 dsa_contracts imports numpy;"
            " besides the standard library it imports torch, jaxtyping, beartype"
        )
    ]


def test_a_backend_library_has_one_folder(tmp_path: Path) -> None:
    build(
        tmp_path,
        src__dsa_cp__triton_jit__turned="import triton\n",
        src__dsa_cp__triton_jit__turn="import triton.language as tl\n",
        src__dsa_cp__comm__symmetric="import torch.distributed as dist\nfrom triton import jit\n",
        src__dsa_cp__comm__distributed="from torch import distributed\n",
    )
    assert lines(tmp_path) == [
        (
            "src/dsa_cp/comm/symmetric.py:2:1 REV007 triton is imported here and in src/dsa_cp/triton_jit;"
            " each backend library has one folder"
        )
    ]


def test_each_listed_code_is_named_by_a_test_of_the_stage(tmp_path: Path) -> None:
    test = edited(
        TEST,
        ('"DSA104")', '"DSA109")'),
        ('    assert CODES and "DSA112"\n', '    """DSA112."""\n    assert CODES  # DSA104\n'),
    )
    assert lines(build(tmp_path, tests__stages__test_shift=test)) == [
        "dsa_contracts/stages/shift.py:12:1 REV012 shift: no test in tests/stages/test_shift.py names DSA104",
        "dsa_contracts/stages/shift.py:12:1 REV012 shift: no test in tests/stages/test_shift.py names DSA112",
    ]


def test_codes_may_be_named_by_further_tests_of_the_stage_and_by_tests_of_every_stage(tmp_path: Path) -> None:
    build(
        tmp_path,
        tests__stages__test_shift="def test_shift():\n    assert 'DSA102'\n",
        tests__stages__test_shift_refusals="def test_scale():\n    assert 'DSA112'\n",
        tests__stages__test_every_stage="FAULTS = {'DSA103': 0, 'DSA104': 1}\n\n\ndef test_all():\n    assert FAULTS\n",
    )
    assert lines(tmp_path) == []


def test_a_table_that_no_test_uses_names_nothing(tmp_path: Path) -> None:
    test = edited(TEST, ("assert CODES and", "assert"))
    found = [line.rpartition(" ")[2] for line in lines(build(tmp_path, tests__stages__test_shift=test))]
    assert found == ["DSA102", "DSA103", "DSA104"]


def test_a_part_of_a_house_is_judged_by_the_whole_of_it(tmp_path: Path) -> None:
    build(tmp_path, src__dsa_cp__stages__shift_fast='"""More."""\n', src__dsa_cp__comm__utils='"""Any."""\n')
    assert len(lines(tmp_path)) == 2
    assert lines(tmp_path, "src/dsa_cp/comm") == [
        "src/dsa_cp/comm/utils.py:1:1 REV004 utils says nothing of what is in it; name it after that"
    ]
    assert lines(tmp_path, "dsa_contracts") == []


def test_a_stub_that_breaks_nothing_alone_breaks_nothing_in_the_house(tmp_path: Path) -> None:
    assert lines(build(tmp_path, dsa_contracts__stages__shift=STUB), "dsa_contracts/stages/shift.py") == []


OTHER = "say in the name what tells them apart"


def test_a_name_leads_to_one_module(tmp_path: Path) -> None:
    build(
        tmp_path,
        dsa_contracts__dsa__rows='"""Marks."""\n',
        src__dsa_cp__layer__rows='"""Others."""\n',
        src__dsa_cp__stages__rows='"""A helper."""\n',
        src__dsa_cp__triton_jit__rows='"""Rows on a device."""\n',
        src__dsa_cp__triton_jit__shift='"""A stage on a device."""\n',
        src__dsa_cp__layer____init__='"""The layer."""\n',
        src__dsa_cp__stages____init__='"""The stages."""\n',
        tests__layer__rows='"""Of a test."""\n',
    )
    assert lines(tmp_path) == [
        f"src/dsa_cp/layer/rows.py:1:1 REV016 rows.py is also dsa_contracts/dsa/rows.py; {OTHER}",
        f"src/dsa_cp/stages/rows.py:1:1 REV016 rows.py is also dsa_contracts/dsa/rows.py; {OTHER}",
    ]


TWO_ROWS = """
if True:

    class Row:
        \"\"\"Another.\"\"\"

else:

    class Row:
        \"\"\"The same in words.\"\"\"
"""


def test_a_name_leads_to_one_class(tmp_path: Path) -> None:
    row, line = 'class Row:\n    """A row."""\n', 'class Line:\n    """A line."""\n'
    build(tmp_path, src__dsa_cp__layer__rows=row + line, src__dsa_cp__comm__wire=TWO_ROWS, tests__layer__rows=line)
    assert lines(tmp_path) == [f"src/dsa_cp/layer/rows.py:1:1 REV017 class Row is also in src/dsa_cp/comm/wire.py; {OTHER}"]
