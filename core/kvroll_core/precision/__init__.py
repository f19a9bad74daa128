"""The precision of a worker: dtype words and their bytes, the form of a KV cache, and when its pages are sealed.

Lives here: the one table of formats, layers that keep 16-bit KV, the rule of kivi's open pages. Pure, imports nothing of ours; every
package that stores, moves, prices or reports weights or KV imports it.
"""
