# shellcheck shell=bash
# Makes the namespace NAMESPACE and loads RULES into it. May be repeated, and may run twice at one
# time: the first `ip netns add` of a host prepares a directory, and two of them would race.
set -euo pipefail

exec 9>/run/netns.lock
flock 9

# A file that is no namespace is what a killed `ip netns add` leaves behind.
if ! ip netns exec "$NAMESPACE" ip link show lo >/dev/null 2>&1; then
  if [ -e "/run/netns/$NAMESPACE" ]; then
    ip netns delete "$NAMESPACE"
  fi
  ip netns add "$NAMESPACE"
fi

ip -n "$NAMESPACE" link set lo up

if [ -n "${HOST_ADDRESS:-}" ]; then
  if ! ip -n "$NAMESPACE" link show egress >/dev/null 2>&1; then
    ip link delete "$NAMESPACE" 2>/dev/null || true
    ip link add "$NAMESPACE" type veth peer name egress netns "$NAMESPACE"
  fi
  ip address replace "$HOST_ADDRESS/30" dev "$NAMESPACE"
  ip link set "$NAMESPACE" up
  ip -n "$NAMESPACE" address replace "$INSIDE_ADDRESS/30" dev egress
  ip -n "$NAMESPACE" link set egress up
  ip -n "$NAMESPACE" route replace default via "$HOST_ADDRESS"
fi

# One transaction: at no moment is there a namespace without its rules once it had them.
{
  echo "table inet cowboy"
  echo "delete table inet cowboy"
  cat "$RULES"
} | ip netns exec "$NAMESPACE" nft -f -
