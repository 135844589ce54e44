-- The sliding log: it stores every admission of the last period, so that any trailing period is
-- counted exactly.
--
-- State: a sorted set. An admission is a member "n:cost" whose score is the time; n makes the
-- member unique. Four more members have negative scores: 'sum' (the sum of all costs, negated,
-- minus one), 'next' (the last n, counted from -2^53), 'seen' (the latest time at which the log was
-- used, at least 1, negated), and 'paused' (the end of a pause, negated).
--
-- Request: op period limit tokens lease hold, and for each refund and each settled lease: time
-- granted unspent (`tokens` is the cost, the number of tokens, or for pause a time; of the
-- `granted` tokens that were admitted at this time, `unspent` return)
-- Answer: granted extra held now wait reset left (for force, `extra` is the charged amount, because
-- a log has no debt; `left` is the rest of the pause)

local op, period, limit, tokens, lease, hold, place = struct.unpack('<sddddd', ARGV[1])
local asked, key = now, KEYS[1]

local function cost_of(member)
  return tonumber(string.match(member, ':(%d+)$'))
end

local scores = redis.call('ZMSCORE', key, 'sum', 'seen', 'next', 'paused')
local sum = scores[1] and -tonumber(scores[1]) - 1 or 0
local seen = scores[2] and -tonumber(scores[2]) or now
local serial = (scores[3] and tonumber(scores[3]) or -9007199254740992) + 1
local paused = scores[4] and -tonumber(scores[4]) or 0
if seen > now then
  if by_server then
    -- The server's clock has stepped back, so the log and its pause are moved back with the clock.
    local all = redis.call('ZRANGEBYSCORE', key, 0, '+inf', 'WITHSCORES')
    for i = 1, #all, 2 do
      redis.call('ZADD', key, math.max(tonumber(all[i + 1]) - (seen - now), 0), all[i])
    end
    redis.call('ZADD', key, -now, 'seen')
    if paused > 0 then
      paused = math.max(paused - (seen - now), 1)
      redis.call('ZADD', key, -paused, 'paused')
    end
  else
    now = seen
  end
end
if op == 'pause' then paused = math.max(paused, asked + tokens) end
local left = math.max(paused - asked, 0)

-- Admissions up to the cutoff have left the window. The next admission removes them.
local cutoff = now - period
local live = cutoff >= 0 and string.format('(%.0f', cutoff) or '0'
local out = {}
if sum > 0 and cutoff >= 0 then out = redis.call('ZRANGEBYSCORE', key, 0, cutoff) end
local held = sum
for _, member in ipairs(out) do held = held - cost_of(member) end

-- Gives back up to `tokens` of the tokens that were admitted at `time`.
local function give_back(tokens, time)
  if sum <= 0 then return end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, time, time)) do
    local count = cost_of(member)
    local back = math.min(count, tokens)
    if back > 0 then
      tokens, sum = tokens - back, sum - back
      if time > cutoff then held = held - back end
      redis.call('ZREM', key, member)
      if count > back then
        redis.call('ZADD', key, time, string.format('%s:%.0f', string.match(member, '^(%d+)'), count - back))
      end
    end
  end
  redis.call('ZADD', key, -sum - 1, 'sum')
end

while place < #ARGV[1] do
  local time, _, unspent
  time, _, unspent, place = struct.unpack('<ddd', ARGV[1], place)
  give_back(unspent, time)
end

-- Returns the time until `tokens` of the held tokens have left the window.
local function until_out(tokens)
  -- Usually one admission is enough.
  local from, count = 0, 4
  while true do
    local members = redis.call('ZRANGEBYSCORE', key, live, '+inf', 'WITHSCORES', 'LIMIT', from, count)
    if #members == 0 then return 0 end
    for i = 1, #members, 2 do
      tokens = tokens - cost_of(members[i])
      if tokens <= 0 then return tonumber(members[i + 1]) + period - now end
    end
    -- The server skips the first `from` admissions one by one, so the pages grow.
    from, count = from + count, count * 4
  end
end

-- Returns the time until no admission counts any more.
local function until_idle()
  return tonumber(redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]) + period - now
end

local granted, extra, wait, reset = 0, 0, 0
local cost = 0
if op ~= 'refund' and op ~= 'pause' then cost = tokens end
if op == 'force' then cost = math.max(math.min(cost, limit - held), 0) end
if cost > limit then
  wait = -1
elseif (cost <= limit - held and (left == 0 or op == 'force')) or cost == 0 then
  granted = 1
  if op == 'check' and left == 0 then
    -- At most half of the remaining tokens are leased, so that other machines also find some.
    extra = math.max(math.min(lease, math.ceil((limit - held - cost) / 2)), 0)
  end
  if op ~= 'peek' and cost + extra > 0 then
    if #out > 0 then redis.call('ZREMRANGEBYSCORE', key, 0, cutoff) end
    held = held + cost + extra
    local entries = { -held - 1, 'sum', -math.max(now, 1), 'seen' }
    local function admit(time, tokens)
      entries[#entries + 1] = time
      entries[#entries + 1] = string.format('%.0f:%.0f', serial + 9007199254740992, tokens)
      serial = serial + 1
    end
    if cost > 0 then admit(now, cost) end
    -- Tokens that may be spent until `hold` has passed count as if they were spent then.
    if extra > 0 then admit(now + hold, extra) end
    redis.call('ZADD', key, serial - 1, 'next', unpack(entries))
    reset = until_idle()
    redis.call('PEXPIRE', key, math.ceil(math.max(reset, left) / 1000) + grace)
  end
elseif cost > limit - held then
  wait = until_out(cost - (limit - held))
end

if held <= 0 then
  reset = 0
elseif not reset then
  reset = until_idle()
end
if op == 'force' then extra = cost end
if op == 'pause' then
  redis.call('ZADD', key, -paused, 'paused', -math.max(now, 1), 'seen')
  local ttl = math.ceil(math.max(reset, left) / 1000) + grace
  -- A machine with a longer period may still count the admissions.
  if not scores[2] or redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, ttl) end
end
return struct.pack('<ddddddd', granted, extra, held, now, wait, reset, left)
