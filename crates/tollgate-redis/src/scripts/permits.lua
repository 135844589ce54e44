-- The permits in flight. At most `limit` permits of a key are out at once.
--
-- State: a sorted set. Each member is the name of a permit, and its score is the time at which the
-- permit's lifetime ends.
--
-- Request: op name lifetime limit
-- Answer: granted out (`out` is the number of permits that were out before)

local op, name, lifetime, limit = struct.unpack('<ssdd', ARGV[1])
local key = KEYS[1]

if op == 'release' then return struct.pack('<dd', redis.call('ZREM', key, name), 0) end

-- Expired permits are not counted. The next grant removes them, so that a refusal writes nothing.
local out = redis.call('ZCOUNT', key, string.format('(%.0f', now), '+inf')
local granted = 0
if op == 'hold' then
  local ends = redis.call('ZMSCORE', key, name)[1]
  local is_out = ends and tonumber(ends) > now
  if is_out or out < limit then
    granted = 1
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    redis.call('ZADD', key, now + lifetime, name)
    local ttl = math.ceil(lifetime / 1000) + grace
    -- Other machines may give their permits a longer lifetime.
    if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, ttl) end
  end
end
return struct.pack('<dd', granted, out)
