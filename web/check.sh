#!/bin/sh
# The committed bundles are those of these sources: build afresh elsewhere, compare byte by byte.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
npx tsc --noEmit
node build.mjs --out "$out"
for part in console report; do
  diff -r "$out/$part/static" "../src/unslow/show/$part/static" || {
    echo "src/unslow/show/$part/static is not what web/ builds: run 'npm run build' in web/ and commit it" >&2
    exit 1
  }
done
