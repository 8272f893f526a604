"""Kubernetes quantities ("500m", "1Gi", "1e3") to exact integers and back.

Invariant: no float is ever involved; rounding, where a unit forces it, is away from zero, as Kubernetes rounds.
"""

import re
from decimal import ROUND_UP, Decimal, localcontext
from functools import lru_cache

from nobiru.kernel.errors import QuantityError

# apimachinery resource/suffix.go: binary and decimal suffixes.
_SUFFIX = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)")
_INT64_MAX = 2**63 - 1
_EXPONENT_MAX = 60  # 1e60 is far outside int64: larger exponents are refused before they cost memory
_LENGTH_MAX = 64


@lru_cache(maxsize=16_384)
def parse_quantity(text: str, scale: int = 1) -> int:
    """The quantity times `scale`, rounded away from zero to a whole number, as Kubernetes' Value and MilliValue do.

    Units:   scale 1 gives bytes or counts, scale 1000 gives milli-units: parse_quantity("1.5", 1000) == 1500.
    Raises:  QuantityError if the text is no quantity, has no digit (Kubernetes reads "m" as 0), or does not fit int64
             (Kubernetes wraps around).
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    if match is None or (match[2] and abs(int(match[2])) > _EXPONENT_MAX):
        raise QuantityError(f'invalid quantity "{text[:_LENGTH_MAX]}": want a number with a suffix such as 500m or 1Gi')
    with localcontext() as context:
        context.prec = 150  # 64 digits times any suffix or exponent above stays exact
        factor = Decimal(10) ** int(match[2]) if match[2] else _SUFFIX[match[3] or ""]
        exact = Decimal(match[1]) * factor * scale
        value = int(exact.to_integral_value(rounding=ROUND_UP))
    if abs(value) > _INT64_MAX:
        raise QuantityError(f'quantity "{text}" is too large: it does not fit 64 bits')
    return value


def cpu_milli(text: str) -> int:
    """CPU as millicores: "1.5" -> 1500, "250m" -> 250."""
    return parse_quantity(text, 1000)


def resource_amount(name: str, text: str) -> int:
    """The amount of a resource in nobiru's unit for it: cpu in millicores, all others in whole units (bytes, counts)."""
    return parse_quantity(text, 1000 if name == "cpu" else 1)


def format_cpu(milli: int) -> str:
    """Canonical text of millicores: 1500 -> "1500m", 2000 -> "2"."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def format_bytes(amount: int) -> str:
    """Canonical binary text of bytes: the largest suffix that stays whole; 1610612736 -> "1536Mi"."""
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        unit = int(_SUFFIX[suffix])
        if amount and amount % unit == 0:
            return f"{amount // unit}{suffix}"
    return str(amount)


def format_amount(name: str, amount: int) -> str:
    """Canonical text of an amount of the named resource, in the unit people write for it."""
    if name == "cpu":
        return format_cpu(amount)
    if name in ("memory", "ephemeral-storage", "storage") or name.startswith("hugepages-"):
        return format_bytes(amount)
    return str(amount)
