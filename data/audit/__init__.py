"""Checks of a data set before a run, by names and sizes of its files; --deep of tools/check_data.py reads contents.

Each split describes itself as an Inventory (data/audit/inventory.py); data/audit/report.py makes the report.
"""
