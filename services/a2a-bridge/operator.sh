# shellcheck shell=bash
# `a2a-bridge` as it is on the PATH of this host: what root asks runs as the bridge's user, with
# the settings and the secrets of the service.
#
# PROGRAM: the program itself. SYSTEMD_RUN, SERVICE_USER, SETTINGS: with what, as whom, with which
# settings. SECRETS: an array, each `NAME:FILE`, and MEMBER_OF: its groups, as the service has them.
set -euo pipefail

refuse() { # STATUS CODE MESSAGE HINT, as the program itself says it
  case " ${words[*]} " in
    *' --json '*)
      printf '{"ok": false, "error": {"code": "%s", "message": "%s", "hint": "%s", "ids": {}}}\n' \
        "$2" "$3" "$4"
      ;;
    *) printf 'a2a-bridge: %s\nhint: %s\n' "$3" "$4" >&2 ;;
  esac
  exit "$1"
}

words=("$@")

# Whoever has settings of their own, or wants only to read, needs nothing of the service.
if [ "${BRIDGE_CONFIG-$SETTINGS}" != "$SETTINGS" ] || [ "$#" = 0 ]; then
  exec "$PROGRAM" "$@"
fi
for word in "$@"; do
  case $word in
    -h | --help | --version) exec "$PROGRAM" "$@" ;;
  esac
done

if [ "$EUID" != 0 ]; then
  refuse 77 no_permission 'no permission: only root can ask with the secrets of the bridge' \
    'run it as root'
fi
if [ "$1" = run ]; then
  refuse 64 usage 'on this host a service runs the bridge' 'systemctl start a2a-bridge'
fi

# The description stands in the journal, where no argument of the command belongs.
options=(--quiet --collect --pipe --wait --service-type=exec "--uid=$SERVICE_USER")
options+=(--description='A command about the bridge' "--setenv=BRIDGE_CONFIG=$SETTINGS")
options+=("--setenv=SUDO_USER=${SUDO_USER:-root}") # who asks, for the audit
for group in "${MEMBER_OF[@]}"; do
  options+=("--property=SupplementaryGroups=$group")
done
for secret in "${SECRETS[@]}"; do
  options+=("--property=LoadCredential=$secret")
done
# Nothing reads its standard input; a terminal that systemd gets there becomes the service user's.
status=0
"$SYSTEMD_RUN" "${options[@]}" -- "$PROGRAM" "$@" </dev/null || status=$?
if [ "$status" = 243 ]; then # systemd's own word for credentials that it cannot read
  refuse 78 secret_unreadable 'a secret of the bridge cannot be read' "it has: ${SECRETS[*]}"
fi
exit "$status"
