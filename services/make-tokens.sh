# shellcheck shell=bash
# Makes the tokens that are missing. No token is ever an argument or in the environment of a
# program.
#
# TOKENS: the names of the tokens that are made, in STATE_DIRECTORY.
set -euo pipefail
umask 0377

# 244 random bits of the kernel's generator; whole and on the disk, or not at all.
make_token() {
  local first second
  read -r first </proc/sys/kernel/random/uuid
  read -r second </proc/sys/kernel/random/uuid
  rm -f "$1.new"
  printf '%s\n' "$first$second" >"$1.new"
  sync "$1.new"
  mv "$1.new" "$1"
  sync "$STATE_DIRECTORY"
}

for token in $TOKENS; do
  if [ ! -e "$STATE_DIRECTORY/$token" ]; then
    make_token "$STATE_DIRECTORY/$token"
  fi
done
