# System packages that some tests use. Without them those tests skip and say so.
missing=()
command -v chromium >/dev/null || missing+=(chromium fonts-noto-cjk)
command -v ip >/dev/null || missing+=(iproute2)
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing for the tests: ${missing[*]}"
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; } \
      >/dev/null 2>&1 || echo "could not install ${missing[*]}: the tests that need them will skip"
  else
    echo "not installed, so some tests skip: ${missing[*]} (Debian/Ubuntu: sudo apt install ${missing[*]})"
  fi
fi
# The page's build tools, so that the check of the committed bundle runs; users need none of them.
if [ ! -d web/node_modules ] && command -v npm >/dev/null; then
  echo "installing the page's build tools (npm ci in web/)"
  (cd web && npm ci --silent --no-audit --no-fund) >/dev/null 2>&1 || {
    rm -rf web/node_modules
    echo "could not install them: the check that the committed bundle is a fresh build's will skip"
  }
fi
