"""Who does the work: deep agents whose model and tool calls are durable steps.

The only layer that knows LangChain and deepagents, which take two seconds to import. So nothing is re-exported here,
and only these modules are light: `build`, `envelope`, `model_calls`, `models`, `policy`,
`secrets`, `schema_sample`, `shell`, `tool_policy`, `tool_rules` and what they import.
"""
