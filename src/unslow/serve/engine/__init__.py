"""The embedded model: an OpenAI-compatible server of one small model on this machine.

Theory of operation. Two processes. The **HTTP process** (`__main__`, `app`) speaks the API: it checks requests,
turns token ids into text, matches stop strings and notices clients that leave. The **step process** (`step`) owns
the model: it tokenises, admits, and calls the backend's `step()` over and over. They are apart because a step holds
the interpreter's lock for its whole duration (half a second for a long prompt), and because native code may abort:
then the HTTP process answers the running requests with an error and starts a new step process (`child`).

One request: `app` parses the body (`api`) → `child.submit` → frame `Submit` (`link`) → `step` encodes the prompt
(`template` keeps user text from becoming control tokens), refuses it or queues it (`admission`) → `Accepted` → when
there is a place, the backend starts it → `Emitted` per step → `app` decodes (`text`) and sends chunks (`answers`).
"""
