"""Names of dims."""

import pytest

from dsa_contracts.core.marks import Dim, dim_name
from tests.support.toy import BoxBytes, Total


class HTTPPort2(Dim):
    """A name with letters that stand together."""


@pytest.mark.parametrize(("dim", "name"), [(Total, "total"), (BoxBytes, "box_bytes"), (HTTPPort2, "h_t_t_p_port2")])
def test_the_written_name_of_a_dim_is_its_class_name_in_snake_case(dim: type[Dim], name: str) -> None:
    assert dim_name(dim) == name
