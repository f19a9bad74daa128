"""Workers: which exist (`workers`, `pods`), which gets a session (`pick`, pure), the one Attach stream to each
(`attach`), all together (`fleet`).

May import `sessions` for nothing but its ports; `openai` and `main` import this.
"""
