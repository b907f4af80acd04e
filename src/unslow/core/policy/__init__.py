"""Decisions of the relay: admission, time-outs, retry, routing. Pure; takes `now_ns`."""
