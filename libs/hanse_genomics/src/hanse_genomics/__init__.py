"""Federated genome-wide association studies that equal the pooled analysis. Specification: spec 000, section 3."""
