"""The package registry's time server over streamable HTTP: `python -m tests.support.mcp_time_over_http PORT`.

The server is not ours; it only starts by stdio of itself.
"""

import sys

import uvicorn
from mcp_server_time.server import create_server  # type: ignore[import-untyped]

if __name__ == "__main__":
    uvicorn.run(create_server("UTC").streamable_http_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
