#!/usr/bin/env bash
# Makes the hash-pinned lock files anew. No address of an index goes into them.
set -euo pipefail
cd "$(dirname "$0")"
compile() { ../.venv/bin/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-find-links \
  --no-emit-trusted-host --no-emit-options --strip-extras --allow-unsafe --no-header --no-annotate "$@"; }
compile ../pyproject.toml --extra engine --extra http3 -o engine.txt
compile ../pyproject.toml -c engine.txt -o base.txt
compile dev.in build.in ../pyproject.toml --extra engine --extra http3 -c engine.txt -o dev.txt
compile build.in -c dev.txt -o build.txt
