# What is there already. Sourced by ./dsec on every run, so it only looks: no network, no lock, a few milliseconds.

node_works() { # PROGRAM: Node 24 or newer
  [ -x "$1" ] && "$1" -e 'process.exit(parseInt(process.versions.node) >= 24 ? 0 : 1)' 2>/dev/null
}

cargo_works() { # PROGRAM: cargo 1.85 or newer, with its rustc
  version=$("$1" --version 2>/dev/null) || return 1
  version=${version#cargo }
  minor=${version#*.}
  minor=${minor%%.*}
  case $minor in '' | *[!0-9]*) return 1 ;; esac
  [ "${version%%.*}" -gt 1 ] || [ "$minor" -ge 85 ]
}

cargo_program() {
  for candidate in "$(command -v cargo 2>/dev/null || true)" "${HOME:-/root}/.cargo/bin/cargo" /usr/bin/cargo; do
    if [ -x "$candidate" ] && cargo_works "$candidate"; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  return 1
}

is_marker() { # NAME TEXT: the marker says exactly this
  [ -f "$state/$1" ] && [ "$(cat "$state/$1")" = "$2" ]
}

write_marker() { # NAME TEXT: whole or not at all
  printf '%s\n' "$2" >"$state/$1.tmp.$$"
  mv -f "$state/$1.tmp.$$" "$state/$1"
}

digest() { sha256sum | cut -c1-64; }

npm_digest() { # of what decides which packages belong in node_modules
  cat "$root/package-lock.json" | digest
}

native_digest() {
  (cd "$root/native" && find . -path ./target -prune -o -type f \( -name '*.rs' -o -name 'Cargo.*' -o -name '*.c' \) -print |
    LC_ALL=C sort | xargs sha256sum | digest)
}

packages_of() { # NEED: Debian packages that its commands use
  case $1 in
    runtime) printf '%s' "ca-certificates bash-static btrfs-progs erofs-utils mmdebstrap runc skopeo python3 python3-pip util-linux" ;;
    testing) printf '%s' "postgresql gcc libc6-dev curl busybox-static zstd procps mount python3-venv" ;;
  esac
}

python_digest() { # of what the virtual environment of the Python tests holds
  cat "$root/python/requirements-dev.txt" | digest
}

apt_digest() { # NEED
  printf '%s %s' "$1" "$(packages_of "$1")" | digest
}

is_there() { # NEED
  case $1 in
    node) [ -f "$state/node-path" ] && node_is_usable "$(cat "$state/node-path")" ;;
    npm) [ -d "$root/node_modules" ] && { is_marker npm "all $npm_hash" || is_marker npm "production $npm_hash"; } ;;
    npm-dev) [ -d "$root/node_modules" ] && is_marker npm "all $npm_hash" ;;
    runtime) [ -x /bin/bash-static ] && [ -x /usr/bin/mmdebstrap ] && is_marker runtime "$(apt_digest runtime)" ;;
    testing) is_marker testing "$(apt_digest testing)" ;;
    rust) cargo_program >/dev/null ;;
    python) [ -x "$state/python/bin/python" ] && is_marker python.made "$(python_digest)" ;;
    native)
      [ -x "$root/native/target/release/hostd" ] && [ -x "$root/native/target/release/mklayer" ] &&
        [ -x "$root/native/target/release/sandbox-init" ] && is_marker native "$(native_digest)"
      ;;
  esac
}

# The version is asked once, when the path is written; a program that was replaced is asked again.
node_is_usable() {
  [ -x "$1" ] && [ ! "$1" -nt "$state/node-path" ]
}

missing_needs() {
  npm_hash=$(npm_digest)
  for need in $needs; do
    is_there "$need" || printf '%s ' "$need"
  done
}
