-- The buckets: token bucket, leaky bucket, leaky queue.
--
-- A token is `unit` units, and each microsecond refills `leak` units. Both are whole numbers, so
-- nothing is ever rounded.
-- State: "debt time unit leak", a string. At `time`, `debt` units were missing, in the units of the
-- quota that wrote the state. After a check, at most the burst is missing; after a forced
-- charge, at most `most` tokens. During a pause, " end" follows.
--
-- ARGV: op now unit leak burst most grace | check: cost extra hold | peek: cost | force: tokens
-- | refund: tokens until | pause: time
-- Answer: granted extra debt now asked left (`now` is the key's time, which is not before `asked`;
-- for force, `extra` is the charged amount; `left` is the rest of the pause)

local op, unit, leak, burst, most, grace =
  ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local now, by_server = clock(ARGV[2])
local asked = now
local capacity = burst * unit

local function leaked(debt, time, leak)
  if time <= 0 then return debt end
  if time >= divceil(debt, leak) then return 0 end
  return debt - time * leak
end

local debt, back, paused = 0, false, 0
-- The debt in the units of the quota that wrote the state. If it exceeds what this quota counts, or
-- if the key is paused, the state keeps these units.
local kept, units, leaks, keeps = 0, unit, leak, false
local state = redis.call('GET', KEYS[1])
if state then
  local owed, time, per, rate, till = string.match(state, '^(%d+) (%d+) (%d+) (%d+) ?(%d*)$')
  if not owed then return redis.error_reply('TOLLGATE the key holds no bucket') end
  paused = tonumber(till) or 0
  owed, time, units, leaks = tonumber(owed), tonumber(time), tonumber(per), tonumber(rate)
  -- If a caller's clock is behind, the caller must not drain again what other callers have drained.
  -- The server's own clock may step back. The bucket and its pause then continue from the new
  -- time, which is stored immediately. Otherwise, nothing would drain until the old time.
  back = by_server and time > now
  if back then paused = paused - (time - now) end
  if time > now and not by_server then now = time end
  kept = leaked(owed, now - time, leaks)
  debt, keeps = kept, op == 'pause' or kept > most * units
  if units ~= unit then
    -- The state was written under another quota. Charged tokens stay charged, counted in tokens.
    if debt / units >= most then
      debt = most * unit
    else
      local part, rest = muldiv(debt, unit % units, units)
      debt = debt * math.floor(unit / units) + part
      if rest > 0 then debt = debt + 1 end
    end
  end
  debt = math.min(debt, most * unit)
end

if op == 'pause' then paused = math.max(paused, asked + tonumber(ARGV[8])) end
local left = math.max(paused - asked, 0)

local function write()
  local owed, per, rate = debt, unit, leak
  if keeps then owed, per, rate = kept, units, leaks end
  if owed <= 0 and left == 0 then
    redis.call('DEL', KEYS[1])
  else
    local ttl = divceil(math.max(divceil(owed, rate), left), 1000) + grace
    local state = string.format('%.0f %.0f %.0f %.0f', owed, now, per, rate)
    redis.call('SET', KEYS[1], state .. until_end(left, paused), 'PX', string.format('%.0f', ttl))
  end
end

local granted, extra = 0, 0
if op == 'force' then
  granted = 1
  extra = math.min(tonumber(ARGV[8]), math.floor((most * unit - debt) / unit))
  debt = debt + extra * unit
  if extra > 0 then write() end
elseif op == 'pause' then
  write()
elseif op ~= 'refund' then
  local cost = tonumber(ARGV[8])
  if cost == 0 or left == 0 and cost <= burst and debt + cost * unit <= capacity then granted = 1 end
  if op == 'check' and granted == 1 then
    local wanted, hold = tonumber(ARGV[9]), tonumber(ARGV[10])
    if wanted > 0 and left == 0 then
      -- Tokens that may be spent until `hold` has passed are charged as if they were spent then.
      local held = math.max(debt, leak * hold)
      local room = math.floor((capacity - held) / unit) - cost
      extra = math.max(math.min(wanted, room), 0)
      if extra > 0 then debt = held end
    end
    debt = debt + (cost + extra) * unit
    if cost + extra > 0 then write() end
  elseif op == 'check' and back then
    write()
  end
elseif debt > 0 then
  -- Tokens that have refilled since the charge can't be given back: see the rule in the library.
  -- The rounding never gives back too much.
  local tokens, till = tonumber(ARGV[8]), tonumber(ARGV[9])
  local held = 0
  if till > now then held = (till - now) * leak - (leak - 1) end
  if tokens <= burst then held = math.min(held, tokens * unit) end
  debt = math.max(debt - held, 0)
  if keeps then
    held = held * math.floor(units / unit) + muldiv(held, units % unit, unit)
    kept = math.max(kept - held, 0)
  end
  write()
end
return { granted, extra, debt, now, asked, left }
