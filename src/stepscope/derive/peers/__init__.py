"""One rank beside those that do the same work: who computes longer, whose links are slow, who is late and why.

For `stragglers` and the findings across ranks, which must name the same ranks and links.
"""
