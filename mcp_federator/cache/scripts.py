"""What Redis itself does for us, each in one step that nobody can come between.

Pure: the texts, and what they take and give.  All keys of one call are of one bucket (`names.Names`), so
each runs on a Cluster.  Arguments that say "random" are new values of `RANDOM_BYTES`, used for whatever is
missing; a value that was missing equals none that is stored in an entry, so what Redis lost costs misses.

Hazards:
- The places at which `_JUDGE` looks into an envelope are those of `envelope`'s head.
- Whatever somebody else put under a key of ours (another type, another length) counts as missing.
- Nothing is written before all that may fail has been read, but for lack of memory: a store that is refused
  must still let go of the lease, and what is there is served although a new generation cannot be kept.
"""

from hashlib import sha1
from typing import Final

import msgspec


class Script(msgspec.Struct, frozen=True):
    """A script by text and by digest; `operation` is its name in metrics."""

    operation: str
    text: str
    sha: str


def _script(operation: str, text: str) -> Script:
    return Script(operation, text, sha1(text.encode(), usedforsecurity=False).hexdigest())


_READ: Final = """
local function read(key, size)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then redis.call('DEL', key) return false end
  if size and value and #value ~= size then return false end
  return value
end
local function common(key, whole)
  local found = redis.pcall('HMGET', key, whole, 'any', 'epoch', 'ended')
  if found.err then redis.call('DEL', key) return {false, false, false, false} end
  for i = 1, 3 do
    if found[i] and #found[i] ~= 8 then found[i] = false end
  end
  return found
end
"""

# Bytes 1-5 mark, 6 flags, 7-14 generation, 15-22 whole, 23-30 any resource, 31-38 epoch, 39-46 stale window.
_JUDGE: Final = """
local untied = string.rep('\\0', 8)
local function current(e, mark, g, m)
  if not e or #e < 46 or string.sub(e, 1, 5) ~= mark then return false end
  local any = string.sub(e, 23, 30)
  return string.sub(e, 7, 14) == g and string.sub(e, 15, 22) == m[1] and (any == untied or any == m[2])
end
local function fresh(e, left, mark, g, m)
  return current(e, mark, g, m) and string.sub(e, 31, 38) == m[3] and left > struct.unpack('>I8', e, 39)
end
local function lasting(key, ms)
  if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, ms) end
end
"""

LOOK: Final = _script(
    "look",
    _READ
    + _JUDGE
    + """
local common_key, g_key, public_key, private_key, shared_lane, own_lane = unpack(KEYS)
local mark, whole, random, birth, token, lease, stale, own = unpack(ARGV)
local m = common(common_key, whole)
local missing = {}
for i, name in ipairs({whole, 'any', 'epoch'}) do
  if not m[i] then
    m[i] = random
    missing[#missing + 1] = name
    missing[#missing + 1] = random
  end
end
local refused = false
local function put(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then refused = answer end
end
if #missing > 0 then
  put('HSET', common_key, unpack(missing))
  if not refused then lasting(common_key, tonumber(birth)) end
end
local g = read(g_key, 8)
if not g then
  g = random
  put('SET', g_key, g, 'PX', birth)
end
local function entry(key)
  local e = read(key)
  if not current(e, mark, g, m) then return e, -1, false end
  local left = redis.call('PTTL', key)
  return e, left, fresh(e, left, mark, g, m)
end
local public, public_left, public_fresh = entry(public_key)
local private, private_left, private_fresh = false, -1, false
if private_key ~= public_key and not public_fresh then
  private, private_left, private_fresh = entry(private_key)
end
local found = public_fresh or private_fresh
if refused and not found then return refused end
local led = ''
if not found and token ~= '' then
  local stamp = g .. m[1]
  local function flown(lane)
    local lease = read(lane)
    return lease and string.sub(lease, 9) == stamp
  end
  local lane = own_lane
  if own == '' then
    local known = public and #public > 5 and string.sub(public, 1, 5) == mark
    if known and string.byte(public, 6) % 2 == 1 or flown(shared_lane) then lane = shared_lane end
  end
  if flown(lane) then
    led = lane == own_lane and 'own' or 'shared'
  else
    redis.call('SET', lane, token .. stamp, 'PX', lease)
    led = lane == own_lane and 'lead own' or 'lead shared'
  end
end
local odd = 0
local function shown(e, left, is_fresh)
  if is_fresh or (stale ~= '' and left >= 0 and not found) then return e end
  -- Another version, or garbage: the asker counts it.
  if e and (#e < 46 or string.sub(e, 1, 5) ~= mark) then return string.sub(e, 1, 6) end
  return ''
end
local now = 0
if m[4] then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
return {
  g .. m[1] .. m[2] .. m[3], m[4] or '', now,
  shown(public, public_left, public_fresh) or '', public_left,
  shown(private, private_left, private_fresh) or '', private_left,
  led,
}
""",
)
"""Look for an answer, and if there is no fresh one, lead the flight for it or learn who does.

Keys: the bucket's common values, the generation, the public entry, the partition's own entry (or the public
one again), the lane all share, the partition's own lane (or the shared one again).
Arguments: mark; name of the common value that stands for all of the kind; random; milliseconds a new
generation lasts; token of the lease, `''` not to lead; milliseconds of the lease; `1` to be given what is
stale too; `1` to fly in the own lane only.
Gives: generation, whole, any resource and epoch as one; ended epochs; Redis' time in ms, 0 where none ended;
the public entry and its remaining ms; the own entry and its remaining ms; and of the flight `''`, `own` or
`shared` (somebody flies there), `lead own` or `lead shared`.
"""

LAND: Final = _script(
    "land",
    _READ
    + _JUDGE
    + """
local common_key, g_key, target, other, lane = unpack(KEYS)
local mark, whole, g, all, any, epoch, act, kept, ms, token = unpack(ARGV)
local channel, on_stored, on_not, on_overtaken = unpack(ARGV, 11)
local message, outcome = on_not, ''
if act ~= 'keep' then
  local m = common(common_key, whole)
  if read(g_key, 8) ~= g or m[1] ~= all or (any ~= '' and m[2] ~= any) then
    message, outcome = on_overtaken, 'overtaken'
  elseif m[3] ~= epoch and (
    fresh(read(target), redis.call('PTTL', target), mark, g, m)
    or fresh(read(other), redis.call('PTTL', other), mark, g, m)
  ) then
    message, outcome = on_stored, 'overtaken'
  else
    -- First of all writes: after any other, Redis takes one for which it has no memory.
    local stored = act == 'store' and redis.pcall('SET', target, kept, 'PX', ms)
    if stored and not stored.err then
      if other ~= target then redis.call('DEL', other) end
      lasting(common_key, ms + 60000)
      lasting(g_key, ms + 60000)
      message, outcome = on_stored, 'stored'
    else
      redis.call('DEL', target, other)
      if stored then outcome = stored end
    end
  end
end
if token ~= '' then
  local lease = read(lane)
  if lease and string.sub(lease, 1, 8) == token then
    redis.call('DEL', lane)
    redis.call('PUBLISH', channel, message)
  end
end
return outcome
""",
)
"""End a flight: keep its answer, or drop what was kept, or leave that alone; and tell who waits.

Nothing is kept or dropped where a change came since the fetch began; after a gap, not what is newer.
Keys: the bucket's common values, the generation, the entry to write, the other entry its asker could have
been given, the lane.
Arguments: mark; name of the whole; generation, whole, any resource (`''` where tied to none) and epoch as
they were before the fetch; `store`, `drop` or `keep`; the entry; its ms; token (`''` where nobody waits);
channel; what to tell there when it is stored, when it is not, and when it was overtaken.
Gives: `stored`, `overtaken` or `''`; or the error, where Redis has no memory for the entry.
"""

HOLD: Final = _script(
    "hold",
    _READ
    + """
local lease = read(KEYS[1])
if lease and string.sub(lease, 1, 8) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0
""",
)
"""Make a lease last on.  Keys: the lane.  Arguments: token, ms.  Gives 1, or 0 where it is not ours."""

TURN: Final = _script(
    "turn",
    _READ
    + """
local m = common(KEYS[1], 'any')
if not m[3] then return 0 end
local time = redis.call('TIME')
local now = string.format('%015.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local ended = string.sub(m[3] .. now .. (m[4] or ''), 1, 23 * 32)
local turned = redis.pcall('HSET', KEYS[1], 'epoch', ARGV[1], 'ended', ended)
if type(turned) == 'table' and turned.err then redis.call('HDEL', KEYS[1], 'epoch', 'ended') end
return 1
""",
)
"""End the epoch of a bucket; where there is no memory for the note, its entries are gone instead of stale.

Keys: the bucket's common values.  Arguments: random.  What ended is noted as epoch (8 bytes) and Redis' time
in ms (15 digits), newest first, at most 32.
"""

LEFT: Final = _script("private", "return redis.call('PTTL', KEYS[1])")
"""How many ms a key has left; negative where it is not there.  Keys: the key."""
