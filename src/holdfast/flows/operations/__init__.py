"""What a flow can ask for beside steps: one module per operation."""
