-- The windows: fixed window, sliding window. Window n contains the microseconds from n * period to
-- (n + 1) * period.
--
-- State: "number previous present period", a string. A fixed window does not use `previous`. During
-- a pause, " end" follows.
--
-- ARGV: op now period limit sliding grace | check: cost extra - | peek: cost | force: tokens most
-- | refund: tokens number | pause: time
-- Answer: granted extra number previous present now left (`now` is the given time or the server's
-- time; for force, `extra` is the charged amount, until `most` tokens are taken; `left` is the rest
-- of the pause)

local op, period, limit, sliding, grace =
  ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1', tonumber(ARGV[6])
local now, by_server = clock(ARGV[2])
local asked = now
local number, previous, present = math.floor(now / period), 0, 0
local back, paused = false, 0
-- The state that a pause writes. It is in the windows of the quota that wrote the state.
local kept

local state = redis.call('GET', KEYS[1])
if state then
  local n, before, count, length, till = string.match(state, '^(%d+) (%d+) (%d+) (%d+) ?(%d*)$')
  if not n then return redis.error_reply('TOLLGATE the key holds no windows') end
  paused = tonumber(till) or 0
  n, before, count, length = tonumber(n), tonumber(before), tonumber(count), tonumber(length)
  local here = math.floor(now / length)
  if by_server and n > here + 1 then
    -- The server's clock has stepped far back. The counts are moved to the current window and
    -- stored immediately. Otherwise, each window until the old time would move them again. A pause
    -- is moved by one window less, so that it never becomes shorter.
    paused = paused - (n - here - 1) * length
    n, back = here, true
  elseif n > here then
    -- The time is earlier than the key's time, so the request is judged at the start of the key's
    -- window.
    now, here = n * length, n
  end
  if here == n + 1 then
    n, before, count = here, count, 0
  elseif here > n then
    n, before, count = here, 0, 0
  end
  kept = { n, before, count, length }
  if length == period then
    number, previous, present = n, before, count
  else
    -- The state was written under another quota. The counts that still apply are moved to the
    -- current window.
    number = math.floor(now / period)
    present = count
    if sliding then present = count + weighed(before, now - n * length, length) end
  end
end

local elapsed = now - number * period
local used = present
if sliding then used = used + weighed(previous, elapsed, period) end
local free = math.max(limit - used, 0)

if op == 'pause' then paused = math.max(paused, asked + tonumber(ARGV[7])) end
local left = math.max(paused - asked, 0)

local function write()
  local n, before, count, length = number, previous, present, period
  if op == 'pause' and kept then n, before, count, length = unpack(kept) end
  local windows = 1
  if sliding then windows = 2 end
  local ttl = divceil(math.max((n + windows) * length - now, left), 1000) + grace
  local state = string.format('%.0f %.0f %.0f %.0f', n, before, count, length)
  redis.call('SET', KEYS[1], state .. until_end(left, paused), 'PX', string.format('%.0f', ttl))
end

local granted, extra = 0, 0
if op == 'force' then
  granted = 1
  extra = math.max(math.min(tonumber(ARGV[7]), tonumber(ARGV[8]) - used), 0)
  present = present + extra
  if extra > 0 then write() end
elseif op == 'pause' then
  write()
elseif op ~= 'refund' then
  local cost = tonumber(ARGV[7])
  if cost == 0 or left == 0 and cost <= free then granted = 1 end
  if op == 'check' and granted == 1 then
    -- At most half of the remaining tokens are leased, so that other machines also find some. A
    -- caller whose clock is in an earlier window gets no lease, because it would spend the lease
    -- after the key's window has ended.
    if left == 0 and now == asked then
      extra = math.max(math.min(tonumber(ARGV[8]), math.ceil((free - cost) / 2)), 0)
    end
    present = present + cost + extra
    if cost + extra > 0 then write() end
  elseif op == 'check' and back then
    write()
  end
elseif state then
  local tokens, n = tonumber(ARGV[7]), tonumber(ARGV[8])
  if n == number and present > 0 then
    present = math.max(present - tokens, 0)
    write()
  elseif n == number - 1 and previous > 0 then
    previous = math.max(previous - tokens, 0)
    write()
  end
end
return { granted, extra, number, previous, present, asked, left }
