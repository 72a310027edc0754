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
  drop_stale_policy
  finish_broken_off
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
  if quietly apt-get -q $apt_options "$@"; then return 0; fi
  tail -n 5 "$state/apt.log" >&2
  return 1
}

quietly() {
  # 9>&-: dpkg's children must not hold the checkout's lock. A server that a package brings is not started.
  LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 "$@" </dev/null >"$state/apt.log" 2>&1 9>&-
}

# dpkg that was killed in the middle, by whomever, refuses all else until it is told to go on.
finish_broken_off() {
  [ -n "$(dpkg --audit 2>/dev/null)$(find /var/lib/dpkg/updates -type f 2>/dev/null)" ] || return 0
  say "finishing an installation of Debian packages that was broken off or goes on"
  seconds=0
  until quietly dpkg --force-confold --configure -a; do
    # Another one installs; unlike apt, dpkg does not wait for it.
    if ! grep -q "locked by another process" "$state/apt.log" || [ "$seconds" -ge 600 ]; then break; fi
    sleep 1
    seconds=$((seconds + 1))
  done
  # What was only unpacked in part is unpacked again.
  apt_get install -f -y || true
}

policy=/usr/sbin/policy-rc.d

# What a ./dsec that was killed left would keep this machine's services from starting for ever.
drop_stale_policy() {
  by=$(sed -n 's/^# of dsec, PID \([0-9]*\), while it installs$/\1/p' "$policy" 2>/dev/null) || by=""
  if [ -n "$by" ] && [ ! -e "/proc/$by" ]; then rm -f "$policy"; fi
}

# Keeps packages from starting their servers, where the machine has no rule of its own.
without_services() {
  drop_stale_policy
  if [ -e "$policy" ]; then
    "$@"
    return
  fi
  printf '#!/bin/sh\n# of dsec, PID %s, while it installs\nexit 101\n' "$$" >"$policy"
  chmod 755 "$policy"
  trap 'rm -f "$policy"; rm -rf "$state"/*.tmp.$$' EXIT
  "$@"
  rm -f "$policy"
}
