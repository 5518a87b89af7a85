"""The operator standard: every operator with its reference, rules, kernels and cost."""
