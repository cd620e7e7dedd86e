"""Drawings of the page, as inline SVG: made from contract records, layouts and plans."""
