"""The resources that are served: a few built in, the rest from CRDs. Pure: imports `schema` alone."""
