"""One machine as a whole: API server, node agent, and the Pods of operator and gateway, over one state folder.

`site.LocalSite` is what callers use (`kvroll up`, the demo, tests); `ending.end` is `kvroll down`. It imports `api` and `node`, which
do not import it, and nothing else of ours: CRDs are handed in as objects.
"""
