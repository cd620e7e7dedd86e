"""Refused by mypy, and by development mode where types are not read."""

from examples.ring_attention.ring import merge
from examples.ring_attention.travel import Lse2, LseE, Partial, Ring


def merges_other_bases(out: Partial, lse: LseE, cached: Partial, cached_lse: Lse2, ring: Ring) -> tuple[Partial, LseE]:
    """Attention over a cached prefix comes from a kernel whose log is to base 2."""
    return merge(out, lse, cached, cached_lse, ring)  # refused
