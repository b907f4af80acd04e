#!/usr/bin/env bash
# Linters, types and the import contract. Each says what is wrong and where.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/ruff check --quiet .
.venv/bin/ruff format --quiet --check .
.venv/bin/mypy --no-error-summary
.venv/bin/lint-imports --no-logo 2>/dev/null | tail -n 1 | grep -q ' 0 broken' || { .venv/bin/lint-imports; exit 1; }
