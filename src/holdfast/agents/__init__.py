"""Who does the work: deep agents whose model and tool calls are durable steps.

The only layer that knows LangChain and deepagents, which take two seconds to import. So nothing is re-exported here,
and only these modules are light: `build`, `envelope`, `framework`, `redaction`, all of `policy`, `coding_agent` but its
`agent`, `simulated` but its `model`, `models.factory`, `tools.rules`, `tools.shell`, and of `calls` the modules `gate`,
`in_flight`, `lane_keys`, `rate_limits`, `retries` and `stall_detector`.
"""
