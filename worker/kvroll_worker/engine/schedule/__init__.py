"""Which rows the next step computes and which pages sessions hold: decisions over plain ints.

Lives here: admission, the scheduler, paging (pool, prefix cache, open pages and spill as one), and where a moved session lands.
No tensors but the bytes of pages, no clock, no wire. Imported by `engine` alone.
"""
