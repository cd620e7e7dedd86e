"""Which dims a rotation pairs. Required wherever RoPE is applied: models differ, and the indexer may differ from MLA."""

from enum import Enum


class RopeStyle(Enum):
    """NEOX pairs dim i with dim i + D/2; INTERLEAVED pairs dim 2i with dim 2i + 1 and stores the pair in place.

    flashinfer and sglang call these `is_neox=True` and `is_neox=False`.
    """

    NEOX = "neox"
    INTERLEAVED = "interleaved"
