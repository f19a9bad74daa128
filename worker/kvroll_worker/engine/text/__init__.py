"""From a row of logits to what a client sees: text that is certain, logprobs, the reason to stop.

Lives here: detokenizing, the prompt's own logprobs, and the event of a token. No pages, no scheduling. Imported by `engine`.
"""
