"""`stepscope mcp`: the questions of the registry as tools of a Model Context Protocol server, for agents."""
