"""Measurements side by side in one run: figures are ratios of what was measured together, never absolute promises."""
