"""`python -m mcp_federator` is the command `mcp-federator`."""

import sys

from mcp_federator.cli import main

if __name__ == "__main__":
    sys.exit(main())
