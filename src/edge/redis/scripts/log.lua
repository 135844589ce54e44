-- A sliding log: every admission of the last period, so that any trailing period is counted exactly.
--
-- State: a sorted set. Admissions are members "n:cost" with their time for a score; n makes them unique. Besides
-- there are three members with negative scores: 'sum' (of all costs, minus one), 'next' (the last n, counted from
-- -2^53), and 'seen' (the latest time that the log was used at, negated).
--
-- ARGV: op now period limit - grace | check: cost extra hold | peek: cost | refund: tokens time
-- Answer: granted extra held now wait reset refill

local op, period, limit, grace = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[6])
local now, by_server = clock(ARGV[2])
local key = KEYS[1]

local function number(score)
  return string.format('%.0f', score)
end

local function cost_of(member)
  return tonumber(string.match(member, ':(%d+)$'))
end

local sum, seen = redis.call('ZSCORE', key, 'sum'), redis.call('ZSCORE', key, 'seen')
sum = sum and -tonumber(sum) - 1 or 0
seen = seen and -tonumber(seen) or now
if seen > now then
  if by_server then
    -- The server's clock has stepped back: so does the log.
    local all = redis.call('ZRANGEBYSCORE', key, 0, '+inf', 'WITHSCORES')
    for i = 1, #all, 2 do
      redis.call('ZADD', key, number(math.max(tonumber(all[i + 1]) - (seen - now), 0)), all[i])
    end
    redis.call('ZADD', key, number(-now), 'seen')
  else
    now = seen
  end
end

-- What has left the window. It is removed by the next admission.
local cutoff = now - period
local live = cutoff >= 0 and '(' .. number(cutoff) or '0'
local out = {}
if sum > 0 and cutoff >= 0 then out = redis.call('ZRANGEBYSCORE', key, 0, number(cutoff)) end
local held = sum
for _, member in ipairs(out) do held = held - cost_of(member) end

-- When `tokens` of what is held will have left the window.
local function until_out(tokens)
  local from = 0
  while true do
    local members = redis.call('ZRANGEBYSCORE', key, live, '+inf', 'WITHSCORES', 'LIMIT', from, 100)
    if #members == 0 then return 0 end
    for i = 1, #members, 2 do
      tokens = tokens - cost_of(members[i])
      if tokens <= 0 then return tonumber(members[i + 1]) + period - now end
    end
    from = from + 100
  end
end

local function last()
  return tonumber(redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2])
end

local granted, extra, wait = 0, 0, 0
local cost = 0
if op ~= 'refund' then cost = tonumber(ARGV[7]) end
if cost > limit then
  wait = -1
elseif cost <= limit - held or cost == 0 then
  granted = 1
  local hold = tonumber(ARGV[9])
  if op == 'check' then
    -- Half of what is left, so that others find something, too.
    extra = math.max(math.min(tonumber(ARGV[8]), math.ceil((limit - held - cost) / 2)), 0)
  end
  if op == 'check' and cost + extra > 0 then
    if #out > 0 then redis.call('ZREMRANGEBYSCORE', key, 0, number(cutoff)) end
    local serial = redis.call('ZSCORE', key, 'next')
    serial = (serial and tonumber(serial) or -9007199254740992) + 1
    held = held + cost + extra
    local function log(time, tokens)
      redis.call('ZADD', key, number(time), string.format('%.0f:%.0f', serial + 9007199254740992, tokens))
    end
    if cost > 0 then log(now, cost) end
    if extra > 0 then
      -- Tokens that may be spent until `hold` is over count as if they were spent then.
      serial = serial + 1
      log(now + hold, extra)
    end
    redis.call('ZADD', key, number(-held - 1), 'sum', number(-now), 'seen', number(serial), 'next')
    redis.call('PEXPIRE', key, number(divceil(last() + period - now, 1000) + grace))
  end
else
  wait = until_out(cost - (limit - held))
end

if op == 'refund' and sum > 0 then
  local tokens, time = tonumber(ARGV[7]), ARGV[8]
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, time, time)) do
    local count = cost_of(member)
    local back = math.min(count, tokens)
    if back > 0 then
      tokens, sum = tokens - back, sum - back
      if tonumber(time) > cutoff then held = held - back end
      redis.call('ZREM', key, member)
      if count > back then
        redis.call('ZADD', key, time, string.format('%s:%.0f', string.match(member, '^(%d+)'), count - back))
      end
    end
  end
  redis.call('ZADD', key, number(-sum - 1), 'sum')
end

local reset, refill = 0, 0
if held > 0 then reset, refill = last() + period - now, until_out(1) end
return { granted, extra, held, now, wait, reset, refill }
