"""What a model may call: built-in, Python, HTTP and MCP tools."""
