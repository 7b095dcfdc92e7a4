# shellcheck shell=bash
# Removes the namespace NAMESPACE. Its members are stopped before: they are bound to this unit.
set -euo pipefail

exec 9>/run/netns.lock
flock 9
if [ -e "/run/netns/$NAMESPACE" ]; then
  ip netns delete "$NAMESPACE"
fi
