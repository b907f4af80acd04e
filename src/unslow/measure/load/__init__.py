"""Schedules, workers and summaries of a load test."""
