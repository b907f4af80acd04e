"""Rules and experiment plans: Timelines and facts in, Findings out."""
