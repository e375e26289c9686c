"""What the page of one snapshot shows: what the verb `report` returns, and no second copy of it."""

from __future__ import annotations

from ..verbs.report import HistoryPoint as Point
from ..verbs.report import ReportResult as Report

__all__ = ["Point", "Report"]
