"""What can be listed: runs, phases, templates, personas, bindings, approvals, artifacts and money, as rows."""
