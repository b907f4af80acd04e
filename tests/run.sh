#!/usr/bin/env bash
# The whole suite: lint, then every test. Installs system packages that tests need where it may (root on Debian).
set -euo pipefail
cd "$(dirname "$0")/.."
source tests/system.sh
bash tests/lint.sh
exec .venv/bin/python -m pytest "$@"
