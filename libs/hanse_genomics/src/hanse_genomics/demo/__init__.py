"""The demonstration's data, and its studies beside the pooled analysis and meta-analysis."""
