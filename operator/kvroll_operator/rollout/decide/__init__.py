"""What shall be: which groups stay, the plan, whose turn it is, the gate's word. A decision is one write to a ControllerRevision, or none.

Imports `facts/` alone, and knows no effect on a Pod; `transition` asks each decision in turn.
"""
