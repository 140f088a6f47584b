"""Results as people use them: PLINK's table, Parquet, and what reads them again."""
