"""Counting: what a scrape shows, and that nothing from outside makes it grow."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from mcp_federator.metrics import BUCKETS, STATUSES, UPSTREAM_OUTCOMES, Metrics
from mcp_federator.model import Change, Era, Method, Outcome, Scope, Tier

DOCS = Path(__file__).parents[1] / "docs" / "metrics.md"


def scrape(metrics: Metrics) -> dict[str, Metric]:
    body, _ = metrics.render()
    return {family.name: family for family in text_string_to_metric_families(body.decode())}


def series(metrics: Metrics, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """The samples called `name`, by their labels."""
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for family in scrape(metrics).values()
        for sample in family.samples
        if sample.name == f"mcp_federator_{name}"
    }


def count_series(metrics: Metrics) -> int:
    return sum(len(family.samples) for name, family in scrape(metrics).items() if name.startswith("mcp_"))


def use_everything(metrics: Metrics) -> None:
    metrics.request("resources/read", Era.MODERN, "ok", 0.001)
    metrics.cache_request("docs", Method.READ, Scope.PUBLIC, Outcome.HIT, Tier.MEMORY)
    metrics.upstream_request("docs", "resources/read", "ok", 0.1)
    metrics.upstream_up("docs", up=True)
    metrics.upstream_info("docs", "modern", "2026-07-28", "streamable_http")
    metrics.invalidation("docs", "list_changed")
    metrics.notification("docs", Change.LIST)
    metrics.listener_dropped("slow")
    metrics.incomplete_list("docs", "timeout")
    metrics.listing_restart("scope")
    metrics.reload("ok")
    metrics.watch_cache(lambda: (1024, 3, 1))
    metrics.watch_listeners(lambda: 1)
    metrics.watch_sessions(lambda: 2)
    metrics.watch_redis(lambda: True)
    metrics.redis("look", 0.001, "timeout")


def test_a_request_is_counted_by_method_era_and_status() -> None:
    """Two equal requests are one series of two."""
    metrics = Metrics("1.2.3")
    metrics.request("resources/read", Era.MODERN, "ok", 0.002)
    metrics.request("resources/read", Era.MODERN, "ok", 0.002)
    metrics.request("resources/list", Era.LEGACY, "client_error", 0.002)
    assert series(metrics, "requests_total") == {
        (("era", "modern"), ("method", "resources/read"), ("status", "ok")): 2,
        (("era", "legacy"), ("method", "resources/list"), ("status", "client_error")): 1,
    }


def test_outcomes_add_up_to_the_queries() -> None:
    """Each query is counted under exactly one outcome."""
    metrics = Metrics("1")
    for outcome in Outcome:
        for scope in Scope:
            metrics.cache_request("docs", Method.LIST, scope, outcome, Tier.NONE)
    assert sum(series(metrics, "cache_requests_total").values()) == len(Outcome) * len(Scope)


@pytest.mark.parametrize(
    ("seconds", "bound"),
    [(0.0, "0.001"), (0.001, "0.001"), (0.0011, "0.0025"), (30.0, "30.0"), (31.0, "+Inf")],
)
def test_an_observation_falls_in_the_bucket_that_ends_with_it(seconds: float, bound: str) -> None:
    """Bounds are inclusive, and all higher buckets count the observation too."""
    metrics = Metrics("1")
    metrics.request("resources/read", Era.MODERN, "ok", seconds)
    buckets = {
        dict(labels)["le"]: value for labels, value in series(metrics, "request_seconds_bucket").items()
    }
    bounds = [*map(str, BUCKETS), "+Inf"]
    assert [buckets[le] for le in bounds] == [0] * bounds.index(bound) + [1] * (
        len(bounds) - bounds.index(bound)
    )
    assert list(series(metrics, "request_seconds_count").values()) == [1]
    assert list(series(metrics, "request_seconds_sum").values()) == [seconds]


def test_H40_unknown_methods_are_other() -> None:
    """A thousand methods nobody knows are two series: one known, one other."""
    metrics = Metrics("1")
    metrics.request("resources/read", Era.MODERN, "ok", 0.001)
    metrics.request("foo/0", Era.MODERN, "client_error", 0.001)
    before = count_series(metrics)
    for number in range(1000):
        metrics.request(f"foo/{number}", Era.MODERN, "client_error", 0.001)
    assert count_series(metrics) == before
    assert (
        series(metrics, "requests_total")[("era", "modern"), ("method", "other"), ("status", "client_error")]
        == 1001
    )


def test_H40_traffic_does_not_add_series() -> None:
    """After each kind of thing happened once, 100,000 more of them change numbers and nothing else."""
    metrics = Metrics("1")
    use_everything(metrics)
    before = count_series(metrics)
    for _ in range(100_000):
        metrics.cache_request("docs", Method.READ, Scope.PUBLIC, Outcome.HIT, Tier.MEMORY)
    for _ in range(100):
        use_everything(metrics)
    assert count_series(metrics) == before


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", 'a"} 1\nfoo{b="'])
def test_H40_any_upstream_name_leaves_a_scrape_that_parses(name: str) -> None:
    """Quotes, backslashes and line breaks in a label are escaped."""
    metrics = Metrics("1")
    metrics.upstream_up(name, up=True)
    assert series(metrics, "upstream_up") == {(("upstream", name),): 1}


@given(method=st.text(), status=st.text(), outcome=st.text(), reason=st.text(), version=st.text(min_size=1))
def test_H40_words_from_outside_stay_within_the_closed_sets(
    method: str, status: str, outcome: str, reason: str, version: str
) -> None:
    """Whatever text is counted, the scrape parses and a closed label holds a word of its set or `other`."""
    metrics = Metrics("1")
    metrics.request(method, Era.MODERN, status, 0.1)
    metrics.upstream_request("docs", method, outcome, 0.1)
    metrics.invalidation("docs", reason)
    metrics.upstream_info("docs", "modern", version, "streamable_http")
    (labels,) = series(metrics, "requests_total")
    assert dict(labels)["method"] in {*Method, "other"}
    assert dict(labels)["status"] in {*STATUSES, "other"}
    (labels,) = series(metrics, "upstream_requests_total")
    assert dict(labels)["outcome"] in {*UPSTREAM_OUTCOMES, "other"}


def test_reasons_are_held_to_a_small_number() -> None:
    """A reason that is made up per event ends as `other`, not as a leak."""
    metrics = Metrics("1")
    for number in range(1000):
        metrics.invalidation("docs", f"reason {number}")
        metrics.listing_restart(f"reason {number}")
        metrics.reload(f"reason {number}")
    assert len(series(metrics, "invalidations_total")) == 17
    assert sum(series(metrics, "invalidations_total").values()) == 1000
    assert len(series(metrics, "listing_restarts_total")) == 17
    assert len(series(metrics, "reloads_total")) == 17


def test_an_upstream_has_one_info_series() -> None:
    """What an upstream spoke before is not shown beside what it speaks."""
    metrics = Metrics("1")
    metrics.upstream_info("docs", "legacy", "2025-11-25", "streamable_http")
    metrics.upstream_info("docs", "modern", "2026-07-28", "streamable_http")
    ((labels, value),) = series(metrics, "upstream_info").items()
    assert (dict(labels)["era"], dict(labels)["version"], value) == ("modern", "2026-07-28", 1)


def test_a_forgotten_upstream_leaves_no_series() -> None:
    """Series of an upstream that left the configuration go, those of others stay."""
    metrics = Metrics("1")
    use_everything(metrics)
    metrics.upstream_up("notes", up=False)
    metrics.forget_upstream("docs")
    metrics.forget_upstream("never there")
    body, _ = metrics.render()
    assert b'upstream="docs"' not in body
    assert series(metrics, "upstream_up") == {(("upstream", "notes"),): 0}


def test_the_cache_is_read_at_each_scrape() -> None:
    """Bytes, entries and evictions are what the store says at that moment."""
    metrics = Metrics("1")
    now = (10, 2, 0)
    metrics.watch_cache(lambda: now)
    assert series(metrics, "cache_bytes") == {(("tier", "memory"),): 10}
    now = (20, 3, 5)
    assert series(metrics, "cache_bytes") == {(("tier", "memory"),): 20}
    assert series(metrics, "cache_entries") == {(("tier", "memory"),): 3}
    assert series(metrics, "cache_evictions_total") == {(("tier", "memory"),): 5}


def test_hit_rates_tell_each_upstream_and_all() -> None:
    """The rate is the share of fresh copies among what was looked up; a bypass was not."""
    metrics = Metrics("1")
    for upstream, outcome, times in [
        ("docs", Outcome.HIT, 3),
        ("docs", Outcome.MISS, 1),
        ("docs", Outcome.BYPASS, 5),
        ("notes", Outcome.STALE, 2),
        ("notes", Outcome.COALESCED, 2),
        ("idle", Outcome.BYPASS, 1),
    ]:
        for _ in range(times):
            metrics.cache_request(upstream, Method.READ, Scope.PUBLIC, outcome, Tier.NONE)
    assert metrics.hit_rates() == {
        "total": {"hit": 3, "stale": 2, "miss": 1, "coalesced": 2, "bypass": 6, "rate": 0.375},
        "upstreams": {
            "docs": {"hit": 3, "stale": 0, "miss": 1, "coalesced": 0, "bypass": 5, "rate": 0.75},
            "notes": {"hit": 0, "stale": 2, "miss": 0, "coalesced": 2, "bypass": 0, "rate": 0.0},
            "idle": {"hit": 0, "stale": 0, "miss": 0, "coalesced": 0, "bypass": 1, "rate": None},
        },
    }


def test_two_sets_of_metrics_do_not_meet() -> None:
    """Each object has a registry of its own."""
    one, other = Metrics("1"), Metrics("2")
    one.reload("ok")
    assert series(other, "reloads_total") == {}
    assert series(other, "build_info") == {(("version", "2"),): 1}


def test_the_process_and_the_platform_are_shown_too() -> None:
    """Operators watch memory and file descriptors with the same scrape."""
    names = scrape(Metrics("1"))
    assert {"process_resident_memory_bytes", "process_open_fds", "python_info"} <= set(names)


def test_the_content_type_is_the_whole_header_value() -> None:
    """The scraper is told format, version and charset."""
    _, content_type = Metrics("1").render()
    assert re.fullmatch(r"text/plain; version=[0-9.]+; charset=utf-8", content_type)


def test_an_operation_on_redis_is_timed_and_its_failures_are_counted() -> None:
    """What was found and cannot be used took no time of its own; without Redis there is no series."""
    metrics = Metrics("1")
    assert not [name for name in scrape(metrics) if "redis" in name]
    up = True
    metrics.watch_redis(lambda: up)
    metrics.redis("look", 0.002, "")
    metrics.redis("look", 0.3, "timeout")
    metrics.redis("entry", None, "foreign")
    found = scrape(metrics)
    assert {sample.value for sample in found["mcp_federator_redis_up"].samples} == {1}
    errors = {
        sample.labels["operation"]: sample.value for sample in _totals(found["mcp_federator_redis_errors"])
    }
    assert errors == {"look": 1, "entry": 1}
    counts = [one for one in found["mcp_federator_redis_seconds"].samples if one.name.endswith("_count")]
    assert {(one.labels["operation"], one.value) for one in counts} == {("look", 2)}
    up = False
    assert {sample.value for sample in scrape(metrics)["mcp_federator_redis_up"].samples} == {0}


def _totals(family: Any) -> list[Any]:
    return [sample for sample in family.samples if sample.name.endswith("_total")]


def test_docs_metrics_names_every_metric_and_no_other() -> None:
    """Name, type, labels and meaning in docs/metrics.md are those of the scrape."""
    metrics = Metrics("1")
    use_everything(metrics)
    exposed = {}
    for name, family in scrape(metrics).items():
        if name.startswith("mcp_federator_"):
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            full_name = f"{name}_total" if family.type == "counter" else name
            exposed[full_name] = (family.type, labels, family.documentation)
    row = re.compile(r"^\| `(mcp_federator_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", re.MULTILINE)
    documented = {
        name: (type_, set(re.findall(r"`(\w+)`", labels)), meaning)
        for name, type_, labels, meaning in row.findall(DOCS.read_text())
    }
    assert documented == exposed


def test_docs_metrics_explains_every_word() -> None:
    """Each word of a closed set has its row."""
    words = set(re.findall(r"^\| `(\w+)` \| [^|]+ \|$", DOCS.read_text(), re.MULTILINE))
    assert words == {*STATUSES, *UPSTREAM_OUTCOMES, *Outcome}
