"""People of a company, served from inside the federator: a repository of one's own.

    PYTHONPATH=examples mcp-federator serve -c examples/people.yaml

The table stands in for a database.  docs/repositories.md explains each line.
"""

from collections.abc import Mapping
from typing import Any

from mcp_federator.repository import Content, Invalid, NotFound, Page, Repository, Resource, expand

STAFF = [
    {"team": "design", "name": "Ada Byron", "works": "on the engine"},
    {"team": "design", "name": "Bo Ek", "works": "on its drawings"},
    {"team": "sales", "name": "Zoë Ölund", "works": "in the north"},
]
TABLES = {"staff": STAFF}


class PeopleRepository(Repository):
    """One resource for each row of a table."""

    prefix = "people://"
    template = "people://{team}/{name}"
    cache_control = ("public", 60_000)

    def __init__(self, table: str, page_size: int = 2) -> None:
        self.rows = TABLES[table]
        self.page_size = page_size

    def list(self, cursor: str | None) -> Page:
        """A few people at a time; the cursor is the number of the first one."""
        if cursor is not None and not cursor.isdecimal():
            raise Invalid("the cursor is none of ours")
        start = int(cursor or 0)
        end = start + self.page_size
        people = [
            Resource(uri=expand(self.template, person), name=person["name"], mime_type="text/plain")
            for person in self.rows[start:end]
        ]
        return Page(people, str(end) if end < len(self.rows) else None)

    def read(self, variables: Mapping[str, Any]) -> Content:
        """What is known of one of them."""
        for person in self.rows:
            if person["team"] == variables["team"] and person["name"] == variables["name"]:
                return Content(body=f"{person['name']} works {person['works']}.", mime_type="text/plain")
        raise NotFound
