"""A result -> one self-contained HTML page: no network, no library, and it reads without JavaScript.

    difference, report     a page each: which sections, in which order
    parts, kernels, graphs, products, places     the sections that both have
    tables, charts, sources     rows, bars and plots, code side by side
    page, markup, numbers     the frame, elements with all text escaped, and quantities in words

All that comes from a cache or a store is hostile: it becomes text by `markup.escaped` alone.
"""

from __future__ import annotations

from .difference import of_difference
from .models import Point, Report
from .report import of_report

__all__ = ["Point", "Report", "of_difference", "of_report"]
