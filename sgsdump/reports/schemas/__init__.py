"""JSON Schemas (draft 2020-12) of the JSON files that commands write.

They are named after the ``format`` field: ``worst_values.json`` describes "sgsdump worst values".
"""
