-- The permits in flight. At most `limit` permits of a key are out at once.
--
-- State: a sorted set. Each member is the name of a permit, and its score is the time at which the
-- permit's lifetime ends.
--
-- ARGV: op name lifetime grace | hold: limit | release: - | count: -
-- Answer: granted out (`out` is the number of permits that were out before)

local op, name, lifetime, grace = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local key = KEYS[1]

if op == 'release' then return { redis.call('ZREM', key, name), 0 } end

local now = clock('')
local function number(time)
  return string.format('%.0f', time)
end

-- Expired permits are not counted. The next grant removes them, so that a refusal writes nothing.
local out = redis.call('ZCOUNT', key, '(' .. number(now), '+inf')
local granted = 0
if op == 'hold' then
  local ends = redis.call('ZMSCORE', key, name)[1]
  local is_out = ends and tonumber(ends) > now
  if is_out or out < tonumber(ARGV[5]) then
    granted = 1
    redis.call('ZREMRANGEBYSCORE', key, '-inf', number(now))
    redis.call('ZADD', key, number(now + lifetime), name)
    local ttl = divceil(lifetime, 1000) + grace
    -- Other machines may give their permits a longer lifetime.
    if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, number(ttl)) end
  end
end
return { granted, out }
