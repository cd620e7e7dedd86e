"""Options that more than one command has."""

from enum import StrEnum


class GroupChoice(StrEnum):
    """Whether ranks reach each other's memory."""

    COLLECTIVE = "collective"
    SYMMETRIC = "symmetric"
