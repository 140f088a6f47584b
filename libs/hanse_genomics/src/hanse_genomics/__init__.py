"""Federated genome-wide association studies that equal the pooled analysis (sPLINK: Nasirigerdeh et al., 2022)."""
