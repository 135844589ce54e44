-- The unsynchronized counts: the sum of the nodes' admissions in a window.
--
-- State: a hash. "w:node" is the number of tokens that a node reports as admitted in window w, and
-- "w" is the sum of all nodes. A node always sends its whole count. A count that is sent twice
-- therefore counts once, and a store that has lost the count receives it again. "paused" is the end
-- of a pause.
--
-- Request: op node period window count, and more numbers | take: cost limit sliding forced
-- | pause: time
-- Answer: granted before total previous share now left (`before` is the node's count before
-- this call, and `share` is the node's part of `previous`; `left` is the rest of the pause)

local op, node, period, window, count, more = struct.unpack('<ssddd', ARGV[1])
local key = KEYS[1]

local function name(window)
  return string.format('%.0f', window)
end

local own = name(window) .. ':' .. node
local found = redis.call('HMGET', key, own, name(window), name(window - 1), name(window - 1) .. ':' .. node,
  'paused')
local before, total = tonumber(found[1] or 0), tonumber(found[2] or 0)
local previous, share = tonumber(found[3] or 0), tonumber(found[4] or 0)
local left = math.max(tonumber(found[5] or 0) - now, 0)

if not found[2] then
  -- This is the first count of the window. Windows before the previous one no longer count. The
  -- node's clock may be ahead, and its window then says nothing about the other nodes' windows.
  local oldest = math.min(window, math.floor(now / period)) - 1
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local of = tonumber(string.match(field, '^%d+') or oldest)
    if of < oldest then redis.call('HDEL', key, field) end
  end
end

local granted, after = 0, math.max(before, count)
if op == 'take' then
  local cost, limit, sliding, forced = struct.unpack('<dddd', ARGV[1], more)
  local free = limit - (total + after - before)
  if sliding == 1 then
    local elapsed = math.min(math.max(now - window * period, 0), period)
    local _, weighed = muldiv(previous, period - elapsed, period)
    free = free - weighed
  end
  if cost <= free and (left == 0 or forced == 1) then granted, after = 1, after + cost end
end

local function keep(time)
  local ttl = math.max(math.ceil(time / 1000), 0) + grace
  -- A late count of an earlier window must not shorten the life of a later window or of a pause.
  if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, ttl) end
end

if after > before then
  total = total + after - before
  redis.call('HSET', key, own, name(after), name(window), name(total))
  keep((window + 2) * period - now)
end
if op == 'pause' then
  left = math.max(left, (struct.unpack('<d', ARGV[1], more)))
  redis.call('HSET', key, 'paused', name(now + left))
  keep(left)
end
return struct.pack('<ddddddd', granted, before, total, previous, share, now, left)
