"""Controllers that CostAda is compared with: pure, and blind to cost."""
