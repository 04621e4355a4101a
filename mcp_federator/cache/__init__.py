"""The cache of one upstream's answers: kept as long, and for whom, as the upstream's own hints allow.

The nouns: a *key* says what is asked, an *entry* is one kept copy, its *life* what is left of it; a
*generation* and an *epoch* tell whether a change came in between; *copies* are what there is for whom; a
*flight* is one running load and all who wait for it, `load` what it does; `readthrough.ReadThrough` is the
loop around them.  `key`, `entry` and `freshness` think: the time is handed in.

With Redis (ADR 0022, 0023), of which a process has one `redis_tier`, `shared` is the same for all replicas:
an *envelope* is an entry as others read it (`secrecy` closes it), *names* are what things are called there,
*scripts* what Redis does in one step; `replicas` tells changes and hears them, over a *channel*, out of an
*outbox*, and knows who leads a flight.

What may not come in: a URI or a credential in a key, a body that must be parsed, a rule about lists across
upstreams (that is federation), a counter that belongs to one request.
"""
