"""FedCAR sees a candidate in the context of the last items that a client had (Wang et al., AAAI 2026).

Owns: its encoder, contrast, compiled gradients. Does not own: how messages travel (`edgefr.engine.transfer`).
"""
