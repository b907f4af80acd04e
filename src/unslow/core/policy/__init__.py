"""What the relay decides, without doing it: access, routing, admission, time-outs, retries. Pure; takes `now_ns`."""
