"""Checks of a data set before a run, by names and sizes of its files; --deep of zoo data check reads contents.

Each split describes itself as an Inventory (data/audit/inventory.py); data/audit/report.py makes the report.
"""
