"""How objects are shown: Tables for kubectl, both forms of Events. Pure."""
