-- Gives each request one of a million keys.
function request()
   return wrk.format(nil, nil, { ["x-key"] = "key-" .. math.random(1000000) })
end
