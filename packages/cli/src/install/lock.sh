# One installer at a time for a checkout. Sourced by ./dsec.

# The lock is an flock on a descriptor of this shell, so it falls with it, however that ends. The file says who holds it.
take_lock() {
  mkdir -p "$state" || die "the folder $state cannot be made" "run ./dsec once as the owner of the checkout"
  exec 9>>"$state/lock"
  if ! flock -n 9; then
    holder=$(cat "$state/lock-holder" 2>/dev/null || true)
    say "another ./dsec installs here (PID ${holder:-unknown}); waiting for it"
    flock 9
  fi
  printf '%s\n' "$$" >"$state/lock-holder"
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
  trap 'rm -rf "$state"/*.tmp.$$' EXIT
}

drop_lock() {
  rm -f "$state/lock-holder"
  trap - INT TERM HUP EXIT
  exec 9>&-
}
