"""What is announced about the sums of packed counts. No numpy: the conductor needs it."""

from __future__ import annotations

from hanse_fabric.messages.masking import Ring


def limb_bits(cohorts: int) -> int:
    """Bits of a limb of packed counts (`structure.bits`), such that as many cohorts add up to less than 2^62."""
    return 62 - cohorts.bit_length()


def limbs(cohorts: int) -> Ring:
    """The ring of such limbs."""
    return Ring(bits=64, fraction=0, bound=2.0 ** limb_bits(cohorts))
