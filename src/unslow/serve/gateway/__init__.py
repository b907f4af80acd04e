"""The relay: takes requests, passes them on, streams answers back, and keeps a record of where the time went."""
