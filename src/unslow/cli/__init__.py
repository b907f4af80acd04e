"""Commands. The only room that reads unslow.toml and the environment."""
