"""How many servers become one: names, templates, cursors, merging, and what is rewritten on the way.

The room thinks and does nothing else: functions of values, no I/O, no clock (`now` is passed in).  What an
upstream says comes in as bytes that were checked for UTF-8 and depth; what goes out is bytes again.

Hazards:
    URIs are text that belongs to the upstream.  Here they get longer or shorter at the front and are never
    parsed and written anew: a URI that was "improved" names nothing any more.
    A live `msgspec.Raw` keeps the whole buffer alive that it was cut from: results hold joined bytes.
"""
