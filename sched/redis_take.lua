-- Takes one token of every bucket, or none of any.
--
-- KEYS  one hash per bucket: t = tokens, at = microseconds when they were counted
-- ARGV  for each bucket: tokens per second, most tokens
-- Returns {0, 0} when all had one, else {which bucket is the last to have one,
-- microseconds until then}.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local left, short, wait = {}, 0, 0
for i, key in ipairs(KEYS) do
  local rate, most = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local bucket = redis.call('HMGET', key, 't', 'at')
  local tokens, at = tonumber(bucket[1]), tonumber(bucket[2])
  if not tokens or not at then
    tokens = most
  elseif now > at then -- a clock that was set back adds nothing
    tokens = tokens + (now - at) * rate / 1000000
  end
  tokens = math.min(tokens, most)
  left[i] = tokens - 1
  if tokens < 1 then
    local until_one = math.ceil((1 - tokens) / rate * 1000000)
    if until_one > wait then
      short, wait = i, until_one
    end
  end
end
if short > 0 then
  return {short, wait}
end
for i, key in ipairs(KEYS) do
  local rate, most = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  -- Numbers become text with 14 digits by themselves: too few for either.
  redis.call('HSET', key, 't', string.format('%.9f', left[i]), 'at', string.format('%.0f', now))
  -- Full again by then: a new bucket is no different.
  redis.call('PEXPIRE', key, string.format('%.0f', math.min(math.ceil(most / rate * 1000) + 1000, 604800000)))
end
return {0, 0}
