"""The numbers an operator watches: counted as plain integers, read by Prometheus.

The hot path counts with one dictionary look-up; `prometheus_client` works only when somebody scrapes.
Metrics are objects, not module state: each has a registry of its own.  What may not come in: a URI, an id, a
token, the name of a client, or any other word from outside.

Hazards:
- Every label value is from a closed set, a configured upstream name, or a word of our own code; what is none
  of these counts as `other`.  A number of series that grows with traffic is a leak (design, section 9).
- All methods belong to the event loop's thread: a scrape in another could meet a dictionary that grows.
- Names and labels are fixed by design section 9; docs/metrics.md says what each means, and a test compares.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Final, TypeAlias

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from mcp_federator.model import Change, Era, Method, Outcome, Scope, Tier

OTHER: Final = "other"
"""The label of every word outside its closed set."""

METHODS: Final = frozenset(
    {
        *(method.value for method in Method),
        "subscriptions/listen",
        "resources/subscribe",
        "resources/unsubscribe",
    }
)
STATUSES: Final = frozenset({"ok", "input_required", "client_error", "upstream_error", "internal_error"})
UPSTREAM_OUTCOMES: Final = frozenset({"ok", "error", "timeout", "unreachable", "refused", "bad_reply"})

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the histograms of requests, in seconds: from a memory hit to the request timeout."""

REDIS_BUCKETS: Final = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the histogram of operations on Redis, in seconds: from next door to what is given up."""

_MAX_WORDS: Final = 16
_MAX_WORD_CHARS: Final = 64

_Key: TypeAlias = tuple[str, ...]


class _Histogram:
    """One series: how many observations fell in each bucket, and their sum in seconds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = BUCKETS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds


class _Words:
    """Words our own code says, held to a small number whatever it says."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def label(self, word: str) -> str:
        if word not in self._known:
            if len(self._known) >= _MAX_WORDS or not word.isprintable() or len(word) > _MAX_WORD_CHARS:
                return OTHER
            self._known.add(word)
        return word


class Metrics(Collector):
    """All counters of one process.  `version` is the program's own, for `build_info`."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._requests: defaultdict[_Key, int] = defaultdict(int)
        self._request_seconds: defaultdict[_Key, _Histogram] = defaultdict(_Histogram)
        self._cache_requests: defaultdict[_Key, int] = defaultdict(int)
        self._upstream_requests: defaultdict[_Key, int] = defaultdict(int)
        self._upstream_seconds: defaultdict[_Key, _Histogram] = defaultdict(_Histogram)
        self._upstream_up: dict[_Key, int] = {}
        self._upstream_info: dict[str, _Key] = {}
        self._invalidations: defaultdict[_Key, int] = defaultdict(int)
        self._notifications: defaultdict[_Key, int] = defaultdict(int)
        self._listeners_dropped: defaultdict[_Key, int] = defaultdict(int)
        self._incomplete_lists: defaultdict[_Key, int] = defaultdict(int)
        self._listing_restarts: defaultdict[_Key, int] = defaultdict(int)
        self._reloads: defaultdict[_Key, int] = defaultdict(int)
        self._invalidation_reasons = _Words()
        self._dropped_reasons = _Words()
        self._incomplete_reasons = _Words()
        self._restart_reasons = _Words()
        self._reload_results = _Words()
        self._redis_errors: defaultdict[_Key, int] = defaultdict(int)
        self._redis_seconds: defaultdict[_Key, _Histogram] = defaultdict(lambda: _Histogram(REDIS_BUCKETS))
        self._redis_operations = _Words()
        self._cache: Callable[[], tuple[int, int, int]] | None = None
        self._listeners: Callable[[], int] | None = None
        self._redis_up: Callable[[], bool] | None = None
        self._sessions: Callable[[], int] | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def request(self, method: str, era: Era, status: str, seconds: float) -> None:
        """Count one answered request; `method` may be any text, `status` is one of `STATUSES`."""
        if method not in METHODS:
            method = OTHER
        self._requests[method, era, status if status in STATUSES else OTHER] += 1
        self._request_seconds[method,].observe(seconds)

    def cache_request(
        self, upstream: str, method: Method, scope: Scope, outcome: Outcome, tier: Tier
    ) -> None:
        """Count one upstream query; each query is counted once, so the outcomes add up to the queries."""
        self._cache_requests[upstream, method, scope, outcome, tier] += 1

    def upstream_request(self, upstream: str, method: str, outcome: str, seconds: float) -> None:
        """Count one request sent to an upstream; `outcome` is one of `UPSTREAM_OUTCOMES`."""
        if method not in METHODS:
            method = OTHER
        outcome = outcome if outcome in UPSTREAM_OUTCOMES else OTHER
        self._upstream_requests[upstream, method, outcome] += 1
        self._upstream_seconds[upstream, method].observe(seconds)

    def upstream_up(self, upstream: str, up: bool) -> None:
        """Say whether the upstream answered when it was asked last."""
        self._upstream_up[upstream,] = int(up)

    def redis(self, operation: str, seconds: float | None, fault: str) -> None:
        """Count one operation, how long it took where that is known, and whether it failed."""
        key = (self._redis_operations.label(operation),)
        if seconds is not None:
            self._redis_seconds[key].observe(seconds)
        if fault:
            self._redis_errors[key] += 1

    def watch_redis(self, up: Callable[[], bool]) -> None:
        """Read whether Redis is of use when somebody scrapes."""
        self._redis_up = up

    def upstream_info(self, upstream: str, era: str, version: str, transport: str) -> None:
        """Say what the upstream speaks; each upstream has one such series, the newest."""
        self._upstream_info[upstream] = (upstream, era, version[:_MAX_WORD_CHARS], transport)

    def invalidation(self, upstream: str, reason: str) -> None:
        """Count entries of an upstream declared stale or gone because of one event."""
        self._invalidations[upstream, self._invalidation_reasons.label(reason)] += 1

    def notification(self, upstream: str, kind: Change) -> None:
        """Count what an upstream said of a change, or that something may have been missed."""
        self._notifications[upstream, kind] += 1

    def listener_dropped(self, reason: str) -> None:
        """Count one listener that was given up."""
        self._listeners_dropped[self._dropped_reasons.label(reason),] += 1

    def incomplete_list(self, upstream: str, reason: str) -> None:
        """Count a list of this upstream that was not seen whole; `reason` is a `Reason`, or `truncated`."""
        self._incomplete_lists[upstream, self._incomplete_reasons.label(reason)] += 1

    def listing_restart(self, reason: str) -> None:
        """Count a walk whose cursor was refused, so that the client must begin anew."""
        self._listing_restarts[self._restart_reasons.label(reason),] += 1

    def reload(self, result: str) -> None:
        """Count one reload of the configuration."""
        self._reloads[self._reload_results.label(result),] += 1

    def watch_cache(self, read: Callable[[], tuple[int, int, int]]) -> None:
        """Ask `read` at each scrape for the memory tier's bytes, entries and evictions so far."""
        self._cache = read

    def watch_listeners(self, read: Callable[[], int]) -> None:
        """Ask `read` at each scrape for the number of those who listen here."""
        self._listeners = read

    def watch_sessions(self, read: Callable[[], int]) -> None:
        """Ask `read` at each scrape for the number of legacy sessions that hold a stream open here."""
        self._sessions = read

    def forget_upstream(self, name: str) -> None:
        """Drop the series of an upstream that left the configuration, once it is closed."""
        by_upstream: tuple[dict[_Key, int] | dict[_Key, _Histogram], ...] = (
            self._cache_requests,
            self._upstream_requests,
            self._upstream_seconds,
            self._upstream_up,
            self._invalidations,
            self._notifications,
            self._incomplete_lists,
        )
        for series in by_upstream:
            for key in [key for key in series if key[0] == name]:
                del series[key]
        self._upstream_info.pop(name, None)

    def hit_rates(self) -> dict[str, object]:
        """What the cache did, for `/status`.

        Returns:
            `{"total": rates, "upstreams": {name: rates}}`, where `rates` has the count of each `Outcome` and
            `rate`, the share of fresh copies among the queries that were looked up (all but `bypass`), or
            None where none was.
        """
        nothing = dict.fromkeys(Outcome, 0)
        total = dict(nothing)
        upstreams: dict[str, dict[Outcome, int]] = {}
        for (upstream, _, _, outcome, _), count in self._cache_requests.items():
            total[Outcome(outcome)] += count
            upstreams.setdefault(upstream, dict(nothing))[Outcome(outcome)] += count
        return {"total": _rates(total), "upstreams": {name: _rates(own) for name, own in upstreams.items()}}

    def render(self) -> tuple[bytes, str]:
        """The scrape: text in Prometheus' exposition format, and the whole value of its `Content-Type`."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Metric]:
        """All families, in the order of docs/metrics.md; called by the registry."""
        yield _counter(
            "requests",
            "Requests of clients, by how they ended.",
            ("method", "era", "status"),
            self._requests,
        )
        yield _histogram(
            "request_seconds",
            "Time from a request's arrival to its answer.",
            ("method",),
            self._request_seconds,
        )
        yield _counter(
            "cache_requests",
            "Queries to an upstream, by what the cache did for them.",
            ("upstream", "method", "scope", "outcome", "tier"),
            self._cache_requests,
        )
        if self._cache is not None:
            size, entries, evictions = self._cache()
            tier = (Tier.MEMORY,)
            yield _gauge("cache_bytes", "Bytes the cache holds.", ("tier",), {tier: size})
            yield _gauge("cache_entries", "Entries the cache holds.", ("tier",), {tier: entries})
            yield _counter(
                "cache_evictions",
                "Entries dropped to make room for others.",
                ("tier",),
                {tier: evictions},
            )
        yield _counter(
            "upstream_requests",
            "Requests sent to an upstream, by how they ended.",
            ("upstream", "method", "outcome"),
            self._upstream_requests,
        )
        yield _histogram(
            "upstream_request_seconds",
            "Time from sending a request to an upstream to its end.",
            ("upstream", "method"),
            self._upstream_seconds,
        )
        yield _gauge(
            "upstream_up",
            "1 if the upstream answered when it was asked last, if only with what could not be used, else 0.",
            ("upstream",),
            self._upstream_up,
        )
        yield _gauge(
            "upstream_info",
            "Always 1; the labels say what the upstream speaks.",
            ("upstream", "era", "version", "transport"),
            dict.fromkeys(self._upstream_info.values(), 1),
        )
        if self._redis_up is not None:
            yield _gauge(
                "redis_up",
                "1 if Redis answers and the other replicas are heard, else 0.",
                (),
                {(): int(self._redis_up())},
            )
            yield _counter(
                "redis_errors",
                "Operations on Redis that failed, and entries found there that could not be used.",
                ("operation",),
                self._redis_errors,
            )
            yield _histogram(
                "redis_seconds",
                "Time from asking Redis to its answer, or to giving up.",
                ("operation",),
                self._redis_seconds,
            )
        yield _counter(
            "invalidations",
            "Events that made cached entries stale or gone.",
            ("upstream", "reason"),
            self._invalidations,
        )
        yield _counter(
            "notifications",
            "What upstreams said of changes.",
            ("upstream", "kind"),
            self._notifications,
        )
        if self._listeners is not None:
            yield _gauge(
                "listeners",
                "Clients that listen for changes at this process.",
                (),
                {(): self._listeners()},
            )
        yield _counter(
            "listeners_dropped",
            "Listeners that were given up.",
            ("reason",),
            self._listeners_dropped,
        )
        if self._sessions is not None:
            yield _gauge(
                "sessions",
                "Legacy sessions that hold a stream open at this process.",
                (),
                {(): self._sessions()},
            )
        yield _counter(
            "incomplete_lists",
            "Lists of the upstream that were not seen whole.",
            ("upstream", "reason"),
            self._incomplete_lists,
        )
        yield _counter(
            "listing_restarts",
            "Walks of a list that were refused and must begin anew.",
            ("reason",),
            self._listing_restarts,
        )
        yield _counter("reloads", "Reloads of the configuration.", ("result",), self._reloads)
        yield _gauge(
            "build_info",
            "Always 1; the label says which version runs.",
            ("version",),
            {(self._version,): 1},
        )


def _rates(counts: Mapping[Outcome, int]) -> dict[str, object]:
    looked_up = sum(counts.values()) - counts[Outcome.BYPASS]
    rate = round(counts[Outcome.HIT] / looked_up, 4) if looked_up else None
    return {**{outcome.value: count for outcome, count in counts.items()}, "rate": rate}


def _counter(name: str, text: str, labels: _Key, series: Mapping[_Key, int]) -> Metric:
    family = CounterMetricFamily(f"mcp_federator_{name}", text, labels=labels)
    for key, count in series.items():
        family.add_metric(key, count)
    return family


def _gauge(name: str, text: str, labels: _Key, series: Mapping[_Key, int]) -> Metric:
    family = GaugeMetricFamily(f"mcp_federator_{name}", text, labels=labels)
    for key, value in series.items():
        family.add_metric(key, value)
    return family


def _histogram(name: str, text: str, labels: _Key, series: Mapping[_Key, _Histogram]) -> Metric:
    family = HistogramMetricFamily(f"mcp_federator_{name}", text, labels=labels)
    for key, histogram in series.items():
        bounds = (*map(str, histogram.bounds), "+Inf")
        buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
        family.add_metric(key, buckets, histogram.total)
    return family
