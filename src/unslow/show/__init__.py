"""What people and systems read. Encoders only; no network."""
