"""An e4m3 codec of its own: the 256 codes by their definition, and encoding as a search for the nearest of them."""

import math
import struct
from bisect import bisect_left


def decode(code: int) -> float:
    """Value of a code: sign, four exponent bits with bias 7, three mantissa bits; 0x7f and 0xff are NaN, none is infinite."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code >> 3) & 0xF, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    if exponent == 0:
        return sign * mantissa * 2.0**-9
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


_MAGNITUDES = [decode(code) for code in range(0x7F)]


def encode(value: float) -> int:
    """Code of the nearest value, the even code of two that are equally near; saturated to +-448, NaN is 0x7f."""
    if math.isnan(value):
        return 0x7F
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    size = min(abs(value), 448.0)
    above = bisect_left(_MAGNITUDES, size)
    if _MAGNITUDES[above] == size:
        return sign | above
    low, high = size - _MAGNITUDES[above - 1], _MAGNITUDES[above] - size
    return sign | (above - 1 if low < high or (low == high and (above - 1) % 2 == 0) else above)


def float32(value: float) -> float:
    """The nearest float32."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def bf16(value: float) -> float:
    """The nearest bf16 of a finite float32, ties to even."""
    (bits,) = struct.unpack("I", struct.pack("f", value))
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return float(struct.unpack("f", struct.pack("I", bits))[0])
