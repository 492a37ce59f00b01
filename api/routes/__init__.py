"""The routes, one module per noun of SPEC 16."""
