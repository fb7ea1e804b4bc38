"""Early stopping: which running trials are not worth finishing. Pure.

Own rules over values: what is decided depends on the scores that are there and on the numbers of the trials,
never on the order in which scores arrived, on what ran at the same time, or on who asks.
"""
