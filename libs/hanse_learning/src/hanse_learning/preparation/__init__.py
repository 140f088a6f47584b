"""Raw tables become what a model sees: what all sites are asked, what follows from their sums, and how it is
applied.

`hanse_schemas.preparation.Preparation` is the value; with numpy alone,

    features = apply(preparation, cells_of(preparation.columns, {"age": [61, None], "sex": ["f", "m"]}))

Importing this package loads no numpy, for the hub conducts what it never computes.
"""
