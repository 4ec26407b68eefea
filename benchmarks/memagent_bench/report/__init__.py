"""Builds a page from records: `make_report` reads folders, and writes `report.html` and pictures; it runs nothing."""

from memagent_bench.report.make import Report, make_report

__all__ = ["Report", "make_report"]
