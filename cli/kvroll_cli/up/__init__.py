"""`kvroll up` and `kvroll down`: flags and what people read; everything else is `kvroll_local.up`."""
