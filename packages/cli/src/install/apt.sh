# Debian packages: asks nothing, waits for apt's lock, updates once a day at most. Sourced by ./dsec.

apt_options="-o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confold -o APT::Install-Recommends=false"

apt_install() { # WHY PACKAGE…
  why=$1
  shift
  wanted=""
  for package in "$@"; do
    installed "$package" || wanted="$wanted $package"
  done
  [ -n "$wanted" ] || return 0
  command -v apt-get >/dev/null || die "$why needs these packages:$wanted" "this is no Debian; install them by its own means"
  [ "$(id -u)" = 0 ] || die "$why needs these Debian packages:$wanted" "run it once as root, or: apt-get install$wanted"
  apt_update
  say "installing Debian packages for $why:$wanted"
  if ! apt_get install -y $wanted; then
    # The lists may be old: once more with new ones.
    apt_updated=""
    apt_update now
    apt_get install -y $wanted || die "apt could not install:$wanted (its last words are above)" "mend apt (try: apt-get install$wanted), then run the same command again"
  fi
}

installed() { # PACKAGE
  [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null)" = "ii " ]
}

apt_updated=""
apt_update() { # [now]
  [ -z "$apt_updated" ] || return 0
  apt_updated=yes
  if [ "${1:-}" != now ] && [ -n "$(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' -mtime -1 2>/dev/null | head -n 1)" ]; then
    return 0
  fi
  say "asking Debian's mirrors for their lists (apt-get update)"
  apt_get update || die "apt-get update failed (its last words are above)" "check /etc/apt/sources.list* and the network, then run the same command again"
}

# apt's own lines go to a log; the last ones are shown when it fails.
apt_get() {
  # 9>&-: dpkg's children must not hold the checkout's lock. A server that a package brings is not started.
  if DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -q $apt_options "$@" </dev/null >"$state/apt.log" 2>&1 9>&-; then
    return 0
  fi
  tail -n 5 "$state/apt.log" >&2
  return 1
}

# Keeps packages from starting their servers, where the machine has no rule of its own.
without_services() {
  if [ -e /usr/sbin/policy-rc.d ]; then
    "$@"
    return
  fi
  printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
  chmod 755 /usr/sbin/policy-rc.d
  trap 'rm -f /usr/sbin/policy-rc.d; rm -rf "$state"/*.tmp.$$' EXIT
  "$@"
  rm -f /usr/sbin/policy-rc.d
}
